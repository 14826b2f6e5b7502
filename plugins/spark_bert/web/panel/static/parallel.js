// Parallel coordinates in SVG: an axis for each parameter and one for the result, and a line for each trial.
import { h, svg } from './elements.js'
import { small } from './format.js'

const MARGIN = { left: 46, right: 46, top: 40, bottom: 14 }
const HEIGHT = 300
const LONGEST = 14 // characters of a choice that an axis shows

/**
 * Make a drawing of parallel coordinates.
 *
 * `update` draws it again. An axis is {title, log, choices, format}: with `choices`, its values are those texts, and
 * otherwise numbers. A line is {name, values, share, best, href}: a value for each axis, null where there is none, and
 * how good it is, from 0 to 1. The best one is drawn last, in a color of its own.
 */
export function parallel(title) {
  const drawing = svg('svg', { role: 'img', 'aria-label': title })
  const tip = h('div', { class: 'tip', hidden: true })
  const legend = h('span', { class: 'legend' }, h('span', {}, h('i', { class: 'c0' }), 'the stronger, the better'), h('span', {}, h('i', { class: 'c1' }), 'the best'))
  const figure = h('figure', { class: 'chart parallel' }, h('figcaption', {}, h('span', {}, title), legend), h('div', { class: 'plot' }, drawing, tip))
  let axes = []
  let lines = []

  function draw() {
    const width = Math.max(drawing.clientWidth || 360, 90 * axes.length)
    drawing.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`)
    const apart = (width - MARGIN.left - MARGIN.right) / Math.max(1, axes.length - 1)
    const placed = axes.map((axis, at) => ({ ...axis, x: MARGIN.left + at * apart, y: scale(axis, lines.map(({ values }) => values[at])) }))
    const inOrder = [...lines].sort((one, other) => (one.best ? 1 : 0) - (other.best ? 1 : 0) || one.share - other.share)
    drawing.replaceChildren(...inOrder.map((line) => drawLine(line, placed)), ...placed.map((axis, at) => drawAxis(axis, at, placed.length)))
  }

  function drawLine(line, placed) {
    const points = placed.flatMap(({ x, y }, at) => (y(line.values[at]) === null ? [] : [`${x.toFixed(1)} ${y(line.values[at]).toFixed(1)}`]))
    const d = `M${points.join('L')}`
    const kind = `line ${line.best ? 'c1 best' : 'c0'}`
    const shown = svg('path', { class: kind, d, 'stroke-opacity': line.best ? 1 : (0.14 + 0.7 * line.share).toFixed(2) })
    const link = svg('a', { href: line.href, 'aria-label': line.name }, shown, svg('path', { class: 'near', d }))
    link.addEventListener('pointermove', (event) => point(event, line))
    link.addEventListener('pointerleave', () => { tip.hidden = true })
    return link
  }

  function point(event, line) {
    const box = drawing.getBoundingClientRect()
    tip.replaceChildren(h('b', {}, line.name), ...axes.map((axis, at) => h('span', {}, `${axis.title} `, h('b', {}, write(axis, line.values[at])))))
    tip.hidden = false
    const at = event.clientX - box.left
    tip.style.left = at > box.width / 2 ? 'auto' : `${at + 14}px`
    tip.style.right = at > box.width / 2 ? `${box.width - at + 14}px` : 'auto'
  }

  new ResizeObserver(draw).observe(drawing)
  return {
    figure,
    update(newAxes, newLines) {
      axes = newAxes
      lines = newLines
      figure.hidden = lines.length < 2
      draw()
    },
  }
}

const text = (value) => (typeof value === 'object' ? JSON.stringify(value) : String(value))
const write = ({ format = small, choices }, value) => (value === null || value === undefined ? '–' : choices || typeof value !== 'number' ? text(value) : format(value))

/** The height at which an axis has a value; null if it has none. */
function scale({ log, choices }, values) {
  const [top, bottom] = [MARGIN.top, HEIGHT - MARGIN.bottom]
  const at = (share) => bottom - share * (bottom - top)
  if (choices) {
    const texts = choices.map(text)
    return (value) => (texts.includes(text(value)) ? at(texts.length > 1 ? texts.indexOf(text(value)) / (texts.length - 1) : 0.5) : null)
  }
  const form = log ? Math.log : (value) => value
  const known = values.filter(Number.isFinite)
  const ends = known.length ? [...new Set([Math.min(...known), Math.max(...known)])] : []
  const [low, high] = [form(ends[0]), form(ends.at(-1))]
  return Object.assign((value) => (Number.isFinite(value) ? at(high > low ? (form(value) - low) / (high - low) : 0.5) : null), { ends })
}

function drawAxis(axis, at, count) {
  const { x, y, title, choices } = axis
  const side = at === count - 1 ? { x: x + 7, 'text-anchor': 'start' } : { x: x - 7, 'text-anchor': 'end' }
  const ends = at === 0 ? 'start' : at === count - 1 ? 'end' : 'middle'
  const [section, name] = title.includes('.') ? title.split('.') : ['', title]
  const edge = at === 0 ? x - MARGIN.left + 2 : at === count - 1 ? x + MARGIN.right - 2 : x
  return svg('g', {},
    svg('line', { class: 'axis', x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
    svg('text', { x: edge, y: 12, 'text-anchor': ends }, section),
    svg('text', { class: 'name', x: edge, y: 26, 'text-anchor': ends }, name),
    (choices || y.ends).map((value) => svg('text', { ...side, y: y(value) + 4 }, shortened(write(axis, value)))))
}

const shortened = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text)
