// The trace of a stage: a row for the spans of each name, on an axis of their own. Its times count from the start of the run.
import { h, place } from './elements.js'
import { count, counted, elapsed, formatted, seconds } from './format.js'
import { chip } from './parts.js'

const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400]
const TICKS = 6

export class Trace {
  constructor(stage) {
    this.stage = stage
    this.element = h('div', { class: 'trace', role: 'group', 'aria-label': `Trace of ${stage}`, hidden: true })
    this.shown = ''
  }

  /** Draw the spans again if there are new ones. `from` is when the run began, null if that is not known; `state` is the stage's. */
  update(found, from, state) {
    const shown = JSON.stringify([found, from, state])
    if (shown === this.shown) return
    this.shown = shown
    this.cut = state === 'stopped' ? 'stopped' : 'failed' // a span with an error in a stage that was stopped has not failed
    const spans = found.rows.flatMap((row) => row.spans)
    this.start = Math.min(...spans.map((span) => span.start))
    this.from = from ?? this.start
    this.whole = Math.max(...spans.map((span) => span.end), this.start + 0.001) - this.start
    this.tip = h('div', { class: 'tip', role: 'status', hidden: true })
    this.element.replaceChildren(
      h('div', { class: 'spans' }, this.axis(), found.rows.map((row) => this.row(row)), this.tip),
      h('p', { class: 'muted' }, notes(found, state === 'running').join(' ')),
    )
  }

  axis() {
    const step = STEPS.find((one) => this.whole / one <= TICKS) || 86400 * Math.ceil(this.whole / 86400 / TICKS)
    const first = Math.ceil((this.start - this.from) / step)
    const ticks = Array.from({ length: TICKS + 1 }, (_, at) => (first + at) * step).filter((moment) => this.percent(this.from + moment) < 92)
    return h('div', { class: 'axis', 'aria-hidden': 'true' },
      ticks.map((moment) => place(h('span', {}, elapsed(moment, step)), this.percent(this.from + moment))))
  }

  percent(moment) {
    return (100 * (moment - this.start)) / this.whole
  }

  row(row) {
    const failed = row.spans.filter((span) => span.error !== null)
    const name = h('span', { class: 'name', title: row.name }, h('span', {}, plain(row.name)),
      row.count > 1 ? h('span', { class: 'muted' }, `× ${count(row.count)}`) : null,
      failed.length ? chip(this.cut === 'failed' ? 'bad' : 'warn', row.count > 1 ? `${failed.length} ${this.cut}` : this.cut) : null)
    name.style.paddingLeft = `${14 * row.depth}px`
    const track = h('div', { class: 'track' }, row.spans.map((span) => this.bars(span)))
    const first = failed[0] || row.spans.reduce((longest, span) => (span.seconds > longest.seconds ? span : longest))
    const element = h('div', {
      class: 'span', tabindex: 0,
      onfocus: () => this.tell(element, row, first),
      onblur: () => (this.tip.hidden = true),
      onpointermove: (event) => this.tell(element, row, this.nearest(row, track, event) || first),
      onclick: (event) => this.tell(element, row, this.nearest(row, track, event) || first),
      onpointerleave: () => (this.tip.hidden = document.activeElement !== element),
    }, name, track, h('span', { class: 'took' }, short(row.seconds)))
    return element
  }

  /** The bar of a span. A phase that takes place again and again fills the part of it that it has taken altogether. */
  bars(span) {
    const put = (kind, seconds) => place(h('i', { class: `bar ${kind}` }), this.percent(span.start), (100 * seconds) / this.whole)
    const bar = put(span.error === null ? 'done' : this.cut, span.seconds)
    return span.seconds >= 0.999 * (span.end - span.start) ? [bar] : [put('extent', span.end - span.start), bar]
  }

  /** The span that is nearest to the pointer, null if that is beside the bars. */
  nearest({ spans }, track, event) {
    const box = track.getBoundingClientRect()
    if (event.clientX < box.left || event.clientX > box.right) return null
    const moment = this.start + (this.whole * (event.clientX - box.left)) / box.width
    const distance = (span) => Math.max(span.start - moment, moment - span.end, 0)
    return spans.reduce((near, span) => (distance(span) < distance(near) ? span : near))
  }

  tell(element, row, span) {
    const parts = span.seconds < 0.999 * (span.end - span.start)
    const from = elapsed(span.start - this.from, 0.001)
    this.tip.replaceChildren(
      h('b', {}, row.name),
      h('span', {}, parts ? `${short(span.seconds)} altogether, between ${from} and ${elapsed(span.end - this.from, 0.001)}` : `${short(span.seconds)}, from ${from}`),
      ...(span.error === null ? [] : [h('span', { class: 'error' }, span.error || this.cut)]),
      ...Object.entries(span.attributes).map(([key, value]) => h('span', {}, h('span', { class: 'muted' }, `${key} `), formatted(value, 'value'))),
    )
    this.tip.hidden = false
    this.tip.style.top = `${element.offsetTop + element.offsetHeight}px`
    const right = this.percent((span.start + span.end) / 2) > 50
    this.tip.style.left = right ? 'auto' : `${element.querySelector('.track').offsetLeft}px`
    this.tip.style.right = right ? '0' : 'auto'
  }
}

function notes({ trace, left_out: leftOut, cut }, running) {
  return [
    running ? 'A span is drawn when it has ended.' : '',
    leftOut ? `${counted(leftOut, 'short span')} ${leftOut === 1 ? 'is' : 'are'} left out.` : '',
    cut ? 'The first spans are not drawn, because the file is too large.' : '',
    `Trace ${trace}`,
  ].filter(Boolean)
}

/** A name without the folders of the file in it. */
const plain = (name) => name.replace(/\S*\/(?=[^/\s]+$)/, '')

const short = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : seconds(value))
