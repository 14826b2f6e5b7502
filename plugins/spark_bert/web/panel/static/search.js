// A search: its trials as they run, what they say of the fields, and its recommendation.
import { h, place, show } from './elements.js'
import { address, fetchJson, parameters, repeat, whichRun } from './page.js'
import { chip, renew, runLink, tile } from './parts.js'
import { chart } from './chart.js'
import { count, formatted, isNumeric, known, percent, runName, score, seconds, state } from './format.js'
import { parallel } from './parallel.js'
import { recommendation, setting } from './recommendation.js'
import { heading } from './table.js'

const LIVE = 2 // seconds between two looks at a search that is running
const LATER = 15
const charts = { trials: chart('Dev metric by trial', { x: 'trial', format: score }), rungs: chart('Dev metric by share of the steps', { x: 'share', format: score }) }
const coordinates = parallel('Settings and results')
let now = null

function layout() {
  show('page',
    h('header', { id: 'head' }), h('section', { id: 'tiles', class: 'tiles' }), h('section', { id: 'recommendation' }),
    h('section', {}, h('h2', {}, 'Trials'), h('div', { class: 'charts' }, charts.trials.figure, charts.rungs.figure, h('div', { id: 'importance', class: 'panel' })), coordinates.figure),
    h('section', { id: 'trials' }))
}

function head({ search, run, dag_id, run_id, state: at, task, metric, files }) {
  document.title = `${search} · Quality`
  return [
    h('p', { class: 'path' }, h('a', { href: 'searches' }, 'Searches')),
    h('h1', {}, search, ' ', state(at)),
    h('p', { class: 'about' }, `${task} · ${metric}`),
    h('div', { class: 'links' }, runLink({ run, dag_id, run_id }), files.map((file) => h('a', { href: file.href, title: `made by ${file.stage}` }, file.title))),
  ]
}

function tiles({ trials, metric, minutes, seconds: spent, state: at, best }) {
  const of = (wanted) => count(trials.filter(({ state }) => state === wanted).length)
  const winner = trials.find(({ number }) => number === best)
  return [
    tile(winner ? `${metric} of trial ${best}` : metric, known(winner?.metric), 'score'),
    at === 'running' && spent < 60 * minutes ? progress(spent, 60 * minutes) : tile(`spent of ${seconds(60 * minutes)}`, seconds(spent)),
    tile('trials', count(trials.length)), ...['complete', 'paused', 'running', 'failed'].map((one) => tile(one, of(one))),
  ]
}

const progress = (spent, budget) => h('div', { class: 'tile progress' },
  h('span', { class: 'title' }, `${seconds(budget - spent)} of work left`), h('span', { class: 'value' }, `${Math.floor((100 * spent) / budget)} %`),
  h('progress', { value: spent, max: budget }))

function draw({ trials, space, shares, metric, best }) {
  const measured = trials.filter(({ metric }) => metric !== null)
  const at = (height) => measured.filter(({ rungs }) => rungs.length === height)
  charts.trials.update([
    { name: 'best so far', points: records(measured) },
    ...shares.map((share, rung) => ({ name: `${Math.round(100 * share)} %${share < 1 ? '' : ' of the steps'}`, colour: rung + 1, dots: true, points: at(rung + 1).flatMap((trial) => [[trial.number, trial.metric], [trial.number, null]]) })),
  ])
  const curve = (trial) => trial.rungs.map((rung, at) => [shares[at], rung.metric])
  const other = ({ number, default: initial }) => number !== best && !initial
  charts.rungs.update([
    ...measured.filter(other).map((trial) => ({ colour: 0, quiet: true, dots: true, points: curve(trial) })),
    ...measured.filter((trial) => !other(trial)).map((trial) => ({ name: trial.default ? 'default' : `trial ${best}`, colour: trial.number === best ? 1 : 2, dots: true, points: curve(trial) })),
  ])
  const values = measured.map(({ metric }) => metric)
  const [low, high] = [Math.min(...values), Math.max(...values)]
  coordinates.update(
    [...Object.entries(space).map(([key, { log, choices }]) => ({ title: key, log, choices })), { title: 'rung', choices: shares.map((_, at) => at + 1) }, { title: metric, format: score }],
    measured.map((trial) => ({
      name: `trial ${trial.number}`, href: trial.run ? address('run', { run: trial.run }) : null, best: trial.number === best,
      share: high > low ? (trial.metric - low) / (high - low) : 1, values: [...Object.keys(space).map((key) => trial.values[key] ?? null), trial.rungs.length, trial.metric],
    })))
}

/** The best metric until each trial, as the points of a line with steps. */
function records(measured) {
  const best = measured.map((_, at) => Math.max(...measured.slice(0, at + 1).map(({ metric }) => metric)))
  return measured.flatMap(({ number }, at) => (at ? [[number, best[at - 1]], [number, best[at]]] : [[number, best[at]]]))
}

function importance({ importance: found, space }) {
  const largest = Math.max(...Object.values(found), 0)
  if (!largest) return [h('h3', {}, 'Importance of the fields'), h('p', { class: 'muted' }, 'It is known when the search has ended, from four trials on.')]
  return [
    h('h3', {}, 'Importance of the fields', h('span', { class: 'muted' }, ' share of the variance of the metric at the first rung')),
    h('table', {}, h('tbody', {}, Object.entries(found).map(([key, share]) => h('tr', {}, h('th', { scope: 'row' }, key), h('td', { class: 'number' }, percent(share)),
      h('td', { class: 'where' }, h('span', { class: 'interval' }, place(h('i'), 0, (100 * share) / largest))))))),
  ]
}

/** What stands in the columns of a trial before those of its values. */
const FACTS = { number: ['Trial', 'number'], state: ['State', 'state'], metric: ['', 'score'], rung: ['Rung', 'number'], step: ['Steps', 'number'], passed: ['Gate', 'passed'], seconds: ['Time', 'seconds'] }

function trials({ trials: all, space, metric, best }) {
  if (!all.length) return h('p', { class: 'empty' }, 'No trial has begun yet.')
  const columns = [
    ...Object.entries(FACTS).map(([key, [title, kind]]) => ({ key, title: title || metric, kind })),
    ...Object.entries(space).map(([key, { choices }]) => ({ key, title: key, kind: choices ? 'value' : 'number' }))]
  const rows = all.map((trial) => ({ ...trial, ...trial.values, rung: trial.rungs.length, step: trial.rungs.at(-1)?.step ?? null }))
  const sort = parameters.sort || ''
  return h('div', { class: 'scroll' }, h('table', { class: 'runs trials' },
    h('thead', {}, h('tr', {}, columns.map((column) => heading('search', column, sort)))),
    h('tbody', {}, sorted(rows, sort.replace('-', ''), sort.startsWith('-')).map((trial) =>
      h('tr', { title: trial.message || null }, columns.map((column) => cell(trial, column, best)))))))
}

function cell(trial, { key, kind }, best) {
  const shown = key === 'number' ? named(trial, best) : key in FACTS ? formatted(trial[key], kind) : setting(trial[key])
  return h('td', { class: isNumeric(kind) ? 'number' : null }, shown)
}

function named({ number, run, default: initial }, best) {
  const mark = number === best ? [chip('good', 'best'), ' '] : initial ? [chip('new', 'default'), ' '] : []
  return [mark, run ? h('a', { href: address('run', { run }) }, String(number)) : String(number)]
}

/** The trials in the order of a column, or those first that have come furthest. What is not known comes last. */
function sorted(rows, key, down) {
  if (!key) return sorted(sorted(rows, 'metric', true), 'rung', true)
  const order = (one, other) => (typeof one === 'number' && typeof other === 'number' ? one - other : String(one).localeCompare(String(other)))
  const known = rows.filter((row) => row[key] !== null && row[key] !== undefined).sort((one, other) => order(one[key], other[key]) * (down ? -1 : 1))
  return [...known, ...rows.filter((row) => !known.includes(row))]
}

async function refresh() {
  now = await fetchJson('search', whichRun)
  if (!now.search) return show('page', h('p', { class: 'empty' }, 'This run is no search: ', runLink(now)))
  if (!document.getElementById('head')) layout()
  renew('head', now, head)
  renew('tiles', now, tiles)
  renew('recommendation', now, recommendation)
  draw(now)
  renew('importance', now, importance)
  renew('trials', now, trials)
}

repeat(refresh, () => (now && now.state === 'running' ? LIVE : LATER))
