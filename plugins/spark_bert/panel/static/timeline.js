// The stages of a run over time: one bar each, on a common axis.
import { h } from './page.js'
import { seconds, state } from './format.js'

export function timeline(stages) {
  const now = Date.now() / 1000
  const spans = stages.map((stage) => span(stage, now))
  const starts = spans.filter(Boolean).map(([start]) => start)
  const from = Math.min(...starts)
  const whole = Math.max(...spans.filter(Boolean).map(([, end]) => end), from + 1) - from
  return [
    h('h2', {}, 'Stages', starts.length ? h('span', { class: 'muted' }, ` ${seconds(whole)} in all`) : null),
    stages.length
      ? h('div', { class: 'timeline' }, stages.map((stage, at) => row(stage, spans[at], from, whole)))
      : h('p', { class: 'muted' }, 'No stage has started yet.'),
  ]
}

/** When a stage started and ended, in seconds since 1970, or null. */
function span({ started, ended, state, seconds }, now) {
  if (started !== null && started !== undefined) return [started, ended ?? (state === 'running' ? now : started + (seconds || 0))]
  return null
}

function row(stage, found, from, whole) {
  const track = h('div', { class: 'track' })
  if (found) {
    const bar = h('div', { class: `bar ${stage.reused ? 'reused' : stage.state}` })
    bar.style.left = `${(100 * (found[0] - from)) / whole}%`
    bar.style.width = `${(100 * (found[1] - found[0])) / whole}%`
    track.append(bar)
  }
  const took = found ? found[1] - found[0] : stage.seconds
  const note = stage.reused ? `reused, made in ${seconds(stage.seconds ?? 0)}` : stage.state === 'waiting' || took === undefined || took === null ? '' : seconds(took)
  return h('div', { class: `stage ${stage.state}`, title: stage.does },
    h('span', { class: 'name' }, stage.stage), state(stage.state), track, h('span', { class: 'took' }, note))
}
