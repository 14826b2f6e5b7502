// The stages of a run over time: one bar each, on a common axis. Below a stage that is opened lies its trace.
import { h, place } from './elements.js'
import { seconds, state } from './format.js'
import { Trace } from './trace.js'

export class Timeline {
  constructor() {
    this.heading = h('h2')
    this.list = h('div', { class: 'timeline' })
    this.element = h('div', {}, this.heading, this.list)
    this.rows = new Map()
    this.chosen = new Map() // the stages that the reader has opened or closed
    this.traces = []
  }

  /** Draw the stages again. What the reader has opened, or points at, stays. */
  update(stages) {
    const now = Date.now() / 1000
    const spans = stages.map((stage) => span(stage, now))
    const starts = spans.filter(Boolean).map(([start]) => start)
    const from = Math.min(...starts)
    const whole = Math.max(...spans.filter(Boolean).map(([, end]) => end), from + 1) - from
    const traces = new Map(this.traces.map((trace) => [trace.stage, trace]))
    const open = interesting(stages, spans, traces)
    this.heading.replaceChildren('Stages', ...(starts.length ? [h('span', { class: 'muted' }, ` ${seconds(whole)} in all`)] : []))
    stages.forEach((stage, at) => {
      if (!this.rows.has(stage.stage)) this.rows.set(stage.stage, new Row(stage, (opened) => this.chosen.set(stage.stage, opened)))
      const row = this.rows.get(stage.stage)
      if (this.list.children[at] !== row.element) this.list.insertBefore(row.element, this.list.children[at] || null)
      row.update(stage, spans[at], from, whole)
      row.trace(traces.get(stage.stage), this.chosen.get(stage.stage) ?? stage.stage === open, starts.length ? from : null, stage.state)
    })
    while (this.list.children.length > stages.length) this.list.lastChild.remove()
    this.list.hidden = !stages.length
    if (!stages.length) this.heading.append(h('span', { class: 'muted' }, ' No stage has started yet.'))
  }
}

/** When a stage started and ended, in seconds since 1970, or null. */
function span({ started, ended, state, seconds }, now) {
  if (started !== null && started !== undefined) return [started, ended ?? (state === 'running' ? now : started + (seconds || 0))]
  return null
}

/** The stage whose trace a reader wants to see first: one that did not succeed, or else the one that took longest. */
function interesting(stages, spans, traces) {
  const traced = stages.map((stage, at) => ({ ...stage, took: spans[at] ? spans[at][1] - spans[at][0] : 0 })).filter(({ stage }) => traces.has(stage))
  const failed = traced.find(({ state }) => state === 'failed' || state === 'stopped')
  return (failed || traced.reduce((most, one) => (one.took > (most?.took ?? 0) && !one.reused ? one : most), null))?.stage
}

class Row {
  constructor({ stage, does }, choose) {
    this.name = h('button', { class: 'name', type: 'button' }, stage)
    this.line = h('div', { class: 'stage', title: does, onclick: () => this.traced && this.open(!this.opened, choose) }, this.name)
    this.spans = new Trace(stage)
    this.element = h('div', {}, this.line, this.spans.element)
  }

  update(stage, found, from, whole) {
    const track = h('div', { class: 'track' })
    if (found) {
      const bar = h('div', { class: `bar ${stage.reused ? 'reused' : stage.state}` })
      track.append(place(bar, (100 * (found[0] - from)) / whole, (100 * (found[1] - found[0])) / whole))
    }
    const took = found ? found[1] - found[0] : stage.seconds
    const note = stage.reused ? `reused, made in ${seconds(stage.seconds ?? 0)}` : stage.state === 'waiting' || took === undefined || took === null ? '' : seconds(took)
    this.line.className = `stage ${stage.state}`
    while (this.line.children.length > 1) this.line.lastChild.remove() // the button keeps the focus
    this.line.append(state(stage.state), track, h('span', { class: 'took' }, note))
  }

  trace(found, opened, from, state) {
    this.traced = Boolean(found)
    this.name.disabled = !found
    if (found) this.spans.update(found, from, state)
    this.open(this.traced && opened)
  }

  open(opened, choose) {
    this.opened = opened
    if (choose) choose(opened)
    this.spans.element.hidden = !opened
    if (this.traced) this.name.setAttribute('aria-expanded', opened)
  }
}
