// What is known of a model's quality: metrics, classes, confusion matrix, calibration, slices, and its worst mistakes.
import { h, place, share } from './elements.js'
import { address, fetchJson, whichRun } from './page.js'
import { chart } from './chart.js'
import { count, known, percent, score, small } from './format.js'
import { rowsTable } from './table.js'

const MISTAKES = 8
const READABLE = 30 // classes whose confusion matrix people can read

export async function evaluation(figures, run) {
  if (!figures.metrics) return [h('h2', {}, 'Evaluation'), h('p', { class: 'muted' }, 'The files of the evaluation are gone.')]
  const wrong = figures.classes || figures.labels ? { wrong: 'true' } : {} // a score is never quite right
  const mistakes = await fetchJson('rows', { ...whichRun, ...wrong })
  return [
    h('h2', {}, 'Evaluation', h('span', { class: 'muted' }, ` on ${count(figures.rows)} dev rows`)),
    h('div', { class: 'panels' },
      metrics(figures),
      slices(figures, run),
      figures.classes || figures.labels ? classes(figures) : null,
      figures.confusion && figures.confusion.length <= READABLE ? confusion(figures, run) : null,
      figures.calibration ? calibration(figures.calibration) : null,
    ),
    h('h2', {}, wrong.wrong ? 'Surest mistakes' : 'Largest errors', ' ',
      h('a', { class: 'more', href: address('rows', { run: run.run, ...wrong }) }, `all ${count(mistakes.total)} ${wrong.wrong ? 'mistakes' : 'rows'}`)),
    rowsTable(mistakes.rows.slice(0, MISTAKES)),
  ]
}

const panel = (title, note, ...content) => h('div', { class: 'panel' }, h('h3', {}, title, note ? h('span', { class: 'muted' }, ' ', note) : null), ...content)

/** A value with its 95 % interval: as a number, and as a point on a line from 0 to 1. */
function measured(value, interval) {
  if (typeof value !== 'number') return [h('td', { class: 'number' }, '–'), h('td')]
  const [low, high] = interval || [value, value]
  const bar = interval ? place(h('i'), share(low), share(high) - share(low)) : null
  const mark = h('span', { class: 'interval' }, bar, place(h('b'), share(value)))
  const title = interval ? `95 % interval ${score(low)} to ${score(high)}` : null
  return [h('td', { class: 'number', title }, score(value)), h('td', { class: 'where', title }, mark)]
}

function metrics({ metrics, metric, interval, baseline, heldout }) {
  const held = heldout && heldout.metrics
  return panel('Metrics', null, h('table', {},
    h('thead', {}, h('tr', {}, h('th', {}), h('th', { class: 'number' }, 'dev'), h('th'), held ? h('th', { class: 'number' }, 'held out') : null, h('th', { class: 'number' }, 'baseline'))),
    h('tbody', {}, Object.entries(metrics).map(([name, value]) => h('tr', { class: name === metric ? 'main' : null },
      h('th', { scope: 'row' }, name), measured(value, name === metric ? interval : null),
      held ? h('td', { class: 'number' }, known(held[name])) : null,
      h('td', { class: 'number muted' }, known(baseline && baseline[name])))))))
}

function classes({ classes, labels }) {
  return panel(classes ? 'Classes' : 'Labels', null, h('table', {},
    h('thead', {}, h('tr', {}, h('th', {}), ['rows', 'precision', 'recall', 'F1'].map((name) => h('th', { class: 'number' }, name)), h('th'))),
    h('tbody', {}, Object.entries(classes || labels).map(([name, one]) => h('tr', {}, h('th', { scope: 'row' }, name),
      h('td', { class: 'number' }, count(one.rows)), h('td', { class: 'number' }, known(one.precision)), h('td', { class: 'number' }, known(one.recall)),
      measured(one.f1, one.f1_interval))))))
}

/** The confusion matrix. Each cell leads to its rows. */
function confusion({ confusion, classes }, run) {
  const names = Object.keys(classes)
  const largest = Math.max(...confusion.map((row) => row.reduce((sum, value) => sum + value, 0)))
  const cell = (value, label, prediction) => {
    const link = h('a', { href: address('rows', { run: run.run, label, prediction }), title: `${count(value)} rows labeled ${label} and predicted ${prediction}` }, count(value))
    const found = h('td', { class: label === prediction ? 'right' : 'wrong' }, value ? link : '0')
    found.style.setProperty('--share', `${Math.round(100 * Math.sqrt(value / largest))}%`)
    return found
  }
  return panel('Confusion', 'labels in rows, predictions in columns', h('div', { class: 'scroll' }, h('table', { class: 'confusion' },
    h('thead', {}, h('tr', {}, h('th'), names.map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', {}, confusion.map((row, label) => h('tr', {}, h('th', { scope: 'row' }, names[label]), row.map((value, at) => cell(value, names[label], names[at]))))))))
}

/** Reliability before and after calibration; old evaluations have one of them. */
function calibration({ before, ...after }) {
  const drawing = chart('Accuracy by confidence', { x: 'confidence', format: small, domain: { x: [0, 1], y: [0, 1] }, diagonal: true })
  const line = (name, { bins }) => ({ name, dots: true, points: bins.map((bin) => [bin.confidence, bin.accuracy]) })
  drawing.update(before ? [line('after', after), line('before', before)] : [line('accuracy', after)])
  const note = h('span', { title: within(after) }, `expected error ${percent(after.ece)}`)
  const was = before ? h('span', { title: within(before) }, `, before ${percent(before.ece)}`) : null
  return panel('Calibration', [note, was], drawing.figure)
}

const within = ({ interval }) => (interval ? `95 % interval ${percent(interval[0])} to ${percent(interval[1])}` : null)

function slices({ slices, label_names: inRows }, run) {
  return panel('Slices', null, h('table', {},
    h('tbody', {}, Object.entries(slices || {}).map(([name, part]) => h('tr', {}, h('th', { scope: 'row', title: name }, inRows ? h('a', { href: address('rows', { run: run.run, slice: name }) }, part.about) : part.about),
      h('td', { class: 'number muted' }, count(part.rows)), h('td', { class: 'muted' }, part.metric), measured(part[part.metric], part.interval))))))
}
