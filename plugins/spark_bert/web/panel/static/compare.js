// Several runs side by side: results, the fields of the experiment that differ, curves, tests, and rows.
import { h, show } from './elements.js'
import { address, fetchJson, parameters, repeat } from './page.js'
import { count, formatted, known, number, score, signed, small, state } from './format.js'
import { Charts, Lines, named, of } from './curves.js'
import { runLink } from './parts.js'
import { answersTable, pager } from './table.js'

const LIVE = 2 // seconds between two looks while one of the runs is running
const LATER = 15 // seconds between two looks otherwise
const run = new URLSearchParams(location.search).getAll('run')
const charts = new Charts()
const lines = {}
let now = null
let shownRows = ''

function layout() {
  show('page',
    h('header', {}, h('p', { class: 'path' }, h('a', { href: 'runs' }, 'Quality')), h('h1', {}, 'Compare runs')),
    h('div', { id: 'results' }),
    h('section', { id: 'curves', hidden: true }, h('h2', {}, 'Training'), charts.element),
    h('section', { id: 'tests' }),
    h('section', { id: 'rows' }),
  )
}

/** The letter and the colour of a run on this page. */
const mark = (at) => h('span', { class: 'mark' }, h('i', { class: `c${at}` }), letter(at))
const letter = (at) => 'ABCDEF'[at]
const letters = (places) => places.map(letter).join(', ').replace(/, (.)$/, ' and $1')

function heading(one, at) {
  const { interval, metric } = one
  return h('th', { scope: 'col' },
    h('div', { class: 'name' }, mark(at), runLink(one)),
    h('div', { class: 'path' }, one.dag_id || 'command line'),
    state(one.state),
    one.score === null ? null : h('div', { class: 'score' }, h('b', {}, score(one.score)), ` ${metric}`),
    interval ? h('div', { class: 'path' }, `${score(interval[0])} to ${score(interval[1])}`) : null)
}

function results({ runs, results, fields }) {
  const line = (title, values, kind, best = []) => h('tr', {}, h('th', { scope: 'row' }, title),
    values.map((value, at) => h('td', { class: best.includes(at) ? 'best' : null, title: best.includes(at) ? 'the best' : null }, formatted(value, kind))))
  const part = (title, note) => h('tr', { class: 'part' }, h('th', { colspan: runs.length + 1, scope: 'rowgroup' }, title, h('span', { class: 'muted' }, ` ${note}`)))
  return h('div', { class: 'scroll' }, h('table', { class: 'compare' },
    h('thead', {}, h('tr', {}, h('td'), runs.map(heading))),
    h('tbody', {}, part('Results', results.some(({ best }) => best.length) ? 'the best in bold' : ''), results.map(({ title, kind, values, best }) => line(title, values, kind, best))),
    h('tbody', {}, part('Experiment', fields.length ? 'all other fields are equal' : 'all fields are equal'), fields.map(({ key, values }) => line(breakable(key), values, 'value')))))
}

/** The name of a field, whose line may end after its dot. */
const breakable = (key) => key.split(/(?<=\.)/).map((part) => [part, h('wbr')])

/** The curves of all runs over one another. */
function draw({ runs }) {
  const curves = runs.map((one, at) => ({ lines: lines[one.run], name: letter(at), colour: at, measured: lines[one.run].measured(one.metric) }))
  const of_ = (which, key, look) => curves.map(({ lines, name, colour }) => ({ name, colour, ...look, points: of(lines[which].filter((line) => key in line), named(key)) }))
  const metrics = [...new Set(curves.map(({ measured }) => measured).filter(Boolean))]
  charts.update('Training loss', { format: small }, of_('training', 'loss', { noisy: true, bare: true }))
  charts.update('Dev loss', { format: small }, of_('dev', 'dev_loss', { dots: true }))
  charts.update(metrics.length === 1 ? `Dev ${metrics[0]}` : 'Dev metric', { format: score }, curves.filter(({ measured }) => measured).map(({ lines, name, colour, measured }) =>
    ({ name: metrics.length === 1 ? name : `${name} ${measured}`, colour, dots: true, points: of(lines.dev, named(measured)) })))
  charts.update('Learning rate', { format: small }, of_('training', 'learning_rate'))
  charts.update('Rows per second', { format: number }, of_('training', 'rows_per_second', { noisy: true, bare: true }))
  document.getElementById('curves').hidden = !curves.some(({ lines }) => lines.all.length)
}

/** Which runs are not part of the tests, and why. */
function left({ runs, together }) {
  const others = runs.map((_, at) => at).filter((at) => !together.includes(at))
  const [evaluated, not] = [others.filter((at) => runs[at].rows), others.filter((at) => !runs[at].rows)]
  return [
    !together.length && evaluated.length > 1 ? 'The dev rows of these runs differ, so their answers cannot be compared row by row.' : '',
    together.length && evaluated.length ? `The dev rows of ${letters(evaluated)} differ from those of ${letters(together)}.` : '',
    not.length ? `There are no evaluated rows of ${letters(not)}.` : '',
  ].filter(Boolean).join(' ')
}

function tests(answer) {
  const { pairs, scores, rows } = answer
  const about = scores
    ? 'The difference of the Pearson correlations with its 95 % interval (infinitesimal jackknife).'
    : "p is that of McNemar's exact test. The difference is that of the shares of rows that are right, with the 95 % interval of Bonett and Price."
  const many = pairs.length > 1 ? ` p is not corrected for testing ${pairs.length} pairs.` : ''
  const numeric = (text) => h('td', { class: 'number' }, text)
  const row = ({ one, other, only_one, only_other, value, interval, p }) => h('tr', { class: p < 0.05 ? 'sure' : null },
    h('th', { scope: 'row' }, mark(one), ' beside ', mark(other)),
    scores ? null : [numeric(count(only_one)), numeric(count(only_other))],
    numeric(known(value, signed)), numeric(interval ? `${signed(interval[0])} to ${signed(interval[1])}` : '–'),
    numeric(known(p, (p) => (p < 0.001 ? '< 0.001' : p.toFixed(3)))))
  const apart = left(answer)
  return [
    h('h2', {}, 'Answers', pairs.length ? h('span', { class: 'muted' }, ` to the same ${count(rows)} dev rows`) : null),
    apart ? h('p', { class: 'notice' }, apart) : null,
    pairs.length ? [
      h('div', { class: 'scroll' }, h('table', { class: 'tests' },
        h('thead', {}, h('tr', {}, [null, ...(scores ? [] : ['right only in the first', 'only in the second']), 'difference', '95 % interval', 'p'].map((title) => h('th', { class: title ? 'number' : null, scope: 'col' }, title)))),
        h('tbody', {}, pairs.map(row)))),
      h('p', { class: 'muted' }, about, many)] : null,
  ]
}

async function rows({ runs, together, scores }) {
  const found = await fetchJson('compared-rows', { run, only: parameters.only, page: parameters.page })
  const option = (at, place) => h('option', { value: runs[at].run, selected: runs[at].run === parameters.only },
    scores ? `${letter(at)} is nearest (${count(found.counts[place])})` : `only ${letter(at)} is right (${count(found.counts[place])})`)
  const all = found.counts.reduce((sum, value) => sum + value, 0)
  return [
    h('h2', {}, scores ? 'Rows on which the predictions lie furthest apart' : 'Rows that only one has right'),
    h('div', { class: 'filters' }, h('select', { 'aria-label': 'Which run', onchange: (event) => location.assign(address('compare', { run, only: event.target.value })) },
      h('option', { value: '' }, `${scores ? 'all rows' : 'any of them'} (${count(all)})`), together.map(option))),
    answersTable(found.rows, together.map(mark)),
    pager('compare', found, 'row', { run, only: parameters.only }),
  ]
}

async function refresh() {
  if (!document.getElementById('results')) layout()
  now = await fetchJson('compare', { run })
  await Promise.all(now.runs.map((one) => (lines[one.run] ??= new Lines()).fetch({ run: one.run })))
  show('results', results(now))
  draw(now)
  show('tests', tests(now))
  const which = `${now.together} ${now.rows}`
  if (which === shownRows) return
  show('rows', now.together.length ? await rows(now) : [])
  if (!shownRows && (parameters.page || parameters.only)) document.getElementById('rows').scrollIntoView()
  shownRows = which
}

repeat(refresh, () => (now && now.runs.some((one) => one.state === 'running') ? LIVE : LATER))
