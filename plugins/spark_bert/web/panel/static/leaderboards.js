// The leaderboards: for each task a table of models, and the papers' figures next to ours.
import { h, place } from './elements.js'
import { address, parameters } from './page.js'
import { chance, chip, none, table, when } from './parts.js'
import { bytes, known, number, score, seconds } from './format.js'

const cell = (value, write) => (typeof value === 'number' ? write(value) : none())

const NOTE = 'Figures are means over the seeds, and p compares with the best model: McNemar’s exact test, or a bootstrap for scores. Times and memory depend on the machine.'

export function leaderboards({ tasks, contradictions }) {
  if (parameters.model) return []
  if (!tasks.length) return [h('h2', {}, 'Leaderboards'), h('p', { class: 'muted' }, 'There is none yet. The Dag leaderboard trains models on several tasks and compares all finished runs.')]
  return [
    h('h2', {}, 'Leaderboards'), h('p', { class: 'muted' }, NOTE),
    tasks.map(leaderboard),
    contradictions.length ? [h('h3', {}, 'Where the papers contradict themselves'), h('ul', { class: 'muted' }, contradictions.map((line) => h('li', {}, line)))] : null,
  ]
}

function leaderboard({ task, metric, rows, papers, leaderboard: chosen, leaderboards: all }) {
  return h('section', { class: 'leaderboard' },
    h('div', { class: 'filters' }, h('h3', {}, task), choice(chosen, all), chosen.href ? h('a', { class: 'more', href: chosen.href }, 'report') : null),
    models(rows, metric),
    papers.length ? beside(papers, metric) : null)
}

/** The leaderboards of a task, of which a reader chooses one. */
function choice(chosen, all) {
  const open = (event) => location.assign(address('models', { ...parameters, leaderboard: event.target.value }))
  return h('select', { 'aria-label': 'Leaderboard', onchange: open }, all.map(({ run, time }) =>
    h('option', { value: run, selected: run === chosen.run }, when(time))))
}

function models(rows, metric) {
  const ends = rows.flatMap(({ metric, interval }) => [metric, ...(interval || [])]).filter(Number.isFinite)
  const range = [Math.min(...ends), Math.max(...ends)]
  return table('board', [['Model', 'nowrap'], [metric, 'number'], ['95 % interval', 'nowrap'], ['', 'where'], ['p', 'number'], ['Seeds', 'nowrap'],
    ['Training', 'number'], ['Rows/s trained', 'number'], ['Rows/s labeled', 'number'], ['Size', 'number'], ['Memory', 'number']],
  rows.map((row, at) => [
    [row.name, ' ', at || row.metric === null ? null : chip('good', 'best')],
    h('b', {}, cell(row.metric, score)), interval(row), whisker(row, range), cell(row.p, chance), seeds(row),
    cell(row.seconds, seconds), cell(row.training_rows_per_second, number), cell(row.labeling_rows_per_second, number),
    cell(row.size, bytes), cell(row.memory, bytes)]))
}

function interval({ interval, interval_over: over }) {
  return interval ? [`${known(interval[0])} to ${known(interval[1])} `, h('span', { class: 'muted' }, `over ${over}`)] : none()
}

/** The metric and its interval as a point on a line, which is the same for all models. */
function whisker({ metric, interval }, [low, high]) {
  if (metric === null) return null
  const at = (value) => (high > low ? (100 * (value - low)) / (high - low) : 50)
  const bar = interval ? place(h('i'), at(interval[0]), at(interval[1]) - at(interval[0])) : null
  return h('span', { class: 'interval' }, bar, place(h('b'), at(metric)))
}

/** The seeds, each with a link to its run. */
function seeds({ seeds, runs }) {
  return seeds.flatMap((seed, at) => [at ? ', ' : '', runs[at] ? h('a', { href: address('run', { run: runs[at] }) }, String(seed)) : String(seed)])
}

function beside(papers, metric) {
  return table('papers', [['Claimed in', ''], ['The papers’ model', ''], ['Claimed', 'number'], [`Our ${metric}`, 'number'], ['Our model', '']],
    papers.map(({ table, name, value, ours }) => [table, name, score(value), cell(ours && ours.metric, score), ours ? ours.name : none()]))
}
