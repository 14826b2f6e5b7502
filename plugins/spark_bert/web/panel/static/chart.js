// A line chart in SVG: axes with round values, several lines over one another, and the values under the pointer.
// uPlot would be 50 kB in place of these 180 lines, and its canvas follows neither the style sheet nor a screen reader.
import { h, svg } from './elements.js'
import { small, tick, time } from './format.js'

const MARGIN = { left: 54, right: 14, top: 10, bottom: 24 }
const HEIGHT = 170
const COLOURS = 8
const SPANS = [60, 600, 3600, 21600, 86400, 7 * 86400, 28 * 86400, 91 * 86400] // seconds between two marks of a time axis
const NOISY = 60 // points from which a noisy line is also drawn smoothed

/**
 * Make a chart.
 *
 * `update` draws it again with lines of the form {name, points: [[x, y], ...]}; a y of null leaves a gap. With `dots`,
 * each point is marked; a `noisy` line is also drawn smoothed, and if it is `bare` only smoothed; a `quiet` one is faint
 * and has no name; `colour` is the number of its colour, otherwise its place. A third element of a point says more
 * about it. The options are `title`, `format`
 * for values, `x` for what the x axis counts (`time`: seconds since 1970), and fixed `domain` {x, y} if there are any.
 */
export function chart(title, { format = small, x = 'step', domain = {}, diagonal = false } = {}) {
  const drawing = svg('svg', { role: 'img', 'aria-label': title })
  const tip = h('div', { class: 'tip', hidden: true })
  const legend = h('span', { class: 'legend' })
  const figure = h('figure', { class: 'chart' }, h('figcaption', {}, h('span', {}, title), legend), h('div', { class: 'plot' }, drawing, tip))
  let lines = []
  let scale = null

  function draw() {
    const width = drawing.clientWidth || 360
    scale = scales(lines, width, domain)
    drawing.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`)
    drawing.replaceChildren(
      ...axes(scale, width, format, x),
      ...(diagonal ? [svg('path', { class: 'diagonal', d: path([[0, 0], [1, 1]], scale) })] : []),
      ...lines.flatMap((line, at) => drawLine(line, at, scale)),
      svg('g', { class: 'pointer' }),
    )
  }

  function point(event) {
    const box = drawing.getBoundingClientRect()
    const near = lines.map((line) => nearest(line.points, scale.invert(event.clientX - box.left)))
    const step = near.filter(Boolean).map((found) => found[0]).sort((a, b) => distance(a) - distance(b))[0]
    if (step === undefined) return leave()
    function distance(value) {
      return Math.abs(scale.x(value) - (event.clientX - box.left))
    }
    const here = lines.map((line, at) => [line, at, near[at]]).filter(([line, , found]) => found && found[0] === step && !line.quiet)
    drawing.querySelector('.pointer').replaceChildren(
      svg('line', { x1: scale.x(step), x2: scale.x(step), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
      ...here.map(([line, at, found]) => svg('circle', { class: colourOf(line, at), cx: scale.x(found[0]), cy: scale.y(found[1]), r: 3.5 })),
    )
    tip.replaceChildren(
      h('b', {}, x === 'step' ? `step ${step}` : x === 'time' ? time(step) : `${x} ${format(step)}`),
      ...here.map(([line, at, found]) => h('span', {}, h('i', { class: colourOf(line, at) }), `${line.name} ${found[2] ?? ''} `, h('b', {}, format(found[1])))),
    )
    tip.hidden = false
    const right = scale.x(step) > box.width / 2
    tip.style.left = right ? 'auto' : `${scale.x(step) + 10}px`
    tip.style.right = right ? `${box.width - scale.x(step) + 10}px` : 'auto'
  }

  function leave() {
    tip.hidden = true
    drawing.querySelector('.pointer')?.replaceChildren()
  }

  drawing.addEventListener('pointermove', point)
  drawing.addEventListener('pointerleave', leave)
  new ResizeObserver(draw).observe(drawing)
  return {
    figure,
    update(newLines) {
      lines = newLines.map((line) => ({ ...line, points: line.points.filter(([at]) => Number.isFinite(at)) }))
      figure.hidden = !lines.some((line) => line.points.some(([, y]) => y !== null))
      figure.dataset.points = lines.reduce((sum, line) => sum + line.points.length, 0)
      const last = lines.length === 1 ? lines[0].points.findLast(([, y]) => y !== null) : null
      legend.replaceChildren(
        ...(last && !diagonal ? [h('b', {}, format(last[1]))] : []),
        ...(lines.length > 1 ? lines.map((line, at) => (line.quiet ? [] : h('span', {}, h('i', { class: colourOf(line, at) }), line.name))).flat() : []),
      )
      draw()
    },
  }
}

function scales(lines, width, domain) {
  const points = lines.flatMap((line) => line.points).filter(([, y]) => y !== null)
  const [left, right] = domain.x || extent(points.map(([x]) => x), 0)
  const [low, high] = domain.y || extent(points.map(([, y]) => y), 0.06)
  const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom }
  const perX = inner.width / (right - left)
  return {
    domain: { x: [left, right], y: [low, high] },
    x: (value) => MARGIN.left + (value - left) * perX,
    y: (value) => MARGIN.top + (1 - (value - low) / (high - low)) * inner.height,
    invert: (pixel) => left + (pixel - MARGIN.left) / perX,
  }
}

function extent(values, padding) {
  let low = Infinity
  let high = -Infinity
  for (const value of values) {
    low = Math.min(low, value)
    high = Math.max(high, value)
  }
  if (low > high) return [0, 1]
  if (low === high) return low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * high)]
  const more = (high - low) * padding
  return [low >= 0 ? Math.max(0, low - more) : low - more, high + more]
}

/** Round values inside of an interval, about `count` of them. */
export function ticks([low, high], count) {
  const rough = (high - low) / count
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough)
  const found = []
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(Number((at * step).toPrecision(12)))
  return found
}

/** Times inside of an interval, at most `count` of them: [time, distance between them]. */
function times([from, to], count) {
  const apart = SPANS.find((span) => (to - from) / span <= count) ?? Math.ceil((to - from) / count / SPANS.at(-1)) * SPANS.at(-1)
  const found = []
  for (let at = Math.ceil(from / apart) * apart; at <= to; at += apart) found.push([at, apart])
  return found
}

function axes(scale, width, format, x) {
  const bottom = HEIGHT - MARGIN.bottom
  const rows = ticks(scale.domain.y, 4).map((value) => [
    svg('line', { class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: scale.y(value), y2: scale.y(value) }),
    svg('text', { x: MARGIN.left - 8, y: scale.y(value) + 4, 'text-anchor': 'end' }, format(value)),
  ])
  const most = Math.max(2, Math.floor(width / 90))
  const marks = x === 'time' ? times(scale.domain.x, most).map(([at, apart]) => [at, tick(at, apart)]) : ticks(scale.domain.x, most).map((value) => [value, small(value)])
  const columns = marks.map(([value, text]) => svg('text', { x: scale.x(value), y: bottom + 17, 'text-anchor': 'middle' }, text))
  return [...rows.flat(), ...columns, svg('line', { class: 'axis', x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom })]
}

const colourOf = (line, at) => `c${(line.colour ?? at) % COLOURS}`

function drawLine(line, at, scale) {
  const { points, dots, noisy, bare, quiet } = line
  const colour = colourOf(line, at)
  const smoothed = noisy && points.length > NOISY
  const paths = [
    smoothed && bare ? [] : svg('path', { class: `line ${smoothed || quiet ? 'raw ' : ''}${colour}`, d: path(points, scale) }),
    smoothed ? svg('path', { class: `line ${colour}`, d: path(smooth(points), scale) }) : [],
  ].flat()
  const marks = points.filter(([, y]) => y !== null && (dots || points.length === 1))
  return [...paths, ...marks.map(([x, y]) => svg('circle', { class: colour, cx: scale.x(x), cy: scale.y(y), r: 3 }))]
}

/** The moving average over a tenth of the points around each. */
function smooth(points) {
  const reach = Math.ceil(points.length / 20)
  return points.map(([x, y], at) => {
    const around = points.slice(Math.max(0, at - reach), at + reach + 1).map((point) => point[1]).filter((value) => value !== null)
    return [x, y === null ? null : around.reduce((sum, value) => sum + value, 0) / around.length]
  })
}

function path(points, scale) {
  let pen = 'M'
  return points.map(([x, y]) => {
    if (y === null) {
      pen = 'M'
      return ''
    }
    const part = `${pen}${scale.x(x).toFixed(1)} ${scale.y(y).toFixed(1)}`
    pen = 'L'
    return part
  }).join('')
}

function nearest(points, x) {
  let best = null
  for (const point of points) if (point[1] !== null && (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x))) best = point
  return best
}
