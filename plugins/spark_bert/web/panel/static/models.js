// The registered models: the champion of each, and its history. Below them, the leaderboards.
import { h, show } from './elements.js'
import { address, fetchJson, parameters, repeat } from './page.js'
import { chance, chip, none, renew, runLink, table, tile, when } from './parts.js'
import { chart } from './chart.js'
import { count, known, percent, score, signed, small } from './format.js'
import { leaderboards } from './leaderboards.js'

const PAUSE = 15 // seconds until the page is fetched again
const charts = new Map()

/** What each kind of event says: its title, its verdict, and what it is about. */
const EVENTS = {
  challenge: (event) => ['Challenge', challengeVerdict(event), challenge(event)],
  trial: (event) => ['Trial', null, trial(event)],
  approval: (event) => ['Approval', approvalVerdict(event), approval(event)],
  promotion: (event) => ['Promotion', promotionVerdict(event), event.reason],
  rollback: (event) => ['Rollback', chip('warn', 'rolled back'), `version ${event.version} is the champion again, no longer version ${event.left}`],
}

function challengeVerdict({ passed, outcome }) {
  if (!passed) return chip('bad', 'refused')
  return chip(outcome === 'undecided' ? 'warn' : 'good', outcome)
}

function challenge(event) {
  const { metric, metrics, champion, compared, difference, interval, p, margin, rows, reasons, href } = event
  const against = champion ? ` against ${known(metrics.champion)} of version ${champion}` : ', and there was no champion'
  const figures = [
    `difference${compared === metric ? '' : ` of ${compared}`} ${known(difference, signed)}`,
    interval ? `95 % interval ${known(interval[0], signed)} to ${known(interval[1], signed)}` : null,
    `p ${known(p, chance)}`, `margin ${known(margin, small)}`, `${known(rows, count)} dev rows`,
  ]
  return [
    h('p', {}, `${metric} ${known(metrics.model)}${against} `, href ? h('a', { class: 'more', href }, 'comparison') : null),
    champion ? h('p', { class: 'muted' }, figures.filter(Boolean).join(', ')) : null,
    reasons.map((reason) => h('p', { class: 'wrong' }, reason)),
  ]
}

function trial({ texts, same, milliseconds }) {
  const times = Object.entries(milliseconds).filter(([, value]) => typeof value === 'number').map(([name, value]) => `${name} ${small(value)} ms`)
  return [
    h('p', {}, `${count(same)} of ${count(texts)} texts got the champion’s answer${texts ? ` (${percent(same / texts)})` : ''}`),
    times.length ? h('p', { class: 'muted' }, `mean time of a request: ${times.join(', ')}`) : null,
  ]
}

function approvalVerdict({ decision }) {
  return chip(decision === 'approved' ? 'good' : decision === 'rejected' ? 'bad' : 'new', decision)
}

function approval({ decision, by, timed_out: late }) {
  if (decision === 'waiting') return 'the run waits for a person’s answer'
  return late ? 'nobody answered in time' : `by ${by}`
}

function promotionVerdict({ promoted, decision }) {
  if (promoted) return chip('good', 'promoted')
  return chip(decision === 'rejected' ? 'bad' : 'warn', decision || 'not promoted')
}

function history({ model, events, total }) {
  const rows = events.map((event) => {
    const [title, verdict, about] = EVENTS[event.kind](event)
    return [when(event.time), [title, ' ', verdict], event.version ? `version ${event.version}` : none(), about, runLink(event)]
  })
  const all = total > events.length ? h('a', { class: 'more', href: address('models', { model }) }, `all ${count(total)} events`) : null
  return [
    h('h3', {}, 'History ', all),
    events.length ? table('history', [['When', 'nowrap'], ['Event', 'nowrap'], ['Model', 'nowrap'], ['', 'what'], ['Run', 'nowrap']], rows) : h('p', { class: 'muted' }, 'No run that is still there has challenged, promoted, or rolled back.'),
  ]
}

const SINCE = { promotion: 'Promoted', rollback: 'Back since', seen: 'First seen' }

function champion({ champion: now, metric }) {
  if (!now) return h('p', { class: 'muted' }, 'There is no champion.')
  return h('div', { class: 'tiles' },
    tile('Champion', `version ${now.version}`, 'score'),
    tile(metric || 'score', known(now.score)),
    tile(SINCE[now.by], when(now.time)),
    tile('Made by', now.made_by ? runLink(now.made_by) : none()))
}

/** The metric of each champion until the next one, and that of each challenger; null if there is nothing to compare. */
function scores({ model, metric, reigns, challengers }) {
  if ([...reigns.map(({ score }) => score), ...challengers.map(([, value]) => value)].filter(Number.isFinite).length < 3) return null
  if (!charts.has(model)) charts.set(model, chart(`${metric || 'Score'} on dev`, { format: score, x: 'time' }))
  const ends = [...reigns.slice(1).map((next) => next.time - 1), Date.now() / 1000]
  const drawing = charts.get(model)
  drawing.update([
    { name: 'champion', points: reigns.flatMap(({ time, score, version }, at) => [time, ends[at]].map((x) => [x, score, `version ${version}`])) },
    { name: 'challenger', dots: true, points: challengers.flatMap(([time, value]) => [[time, value], [time, null]]) },
  ])
  return drawing.figure
}

function section(one) {
  const drawing = scores(one)
  return h('section', {}, parameters.model ? null : h('h2', {}, one.model), h('div', { class: drawing ? 'champion' : 'champion alone' }, champion(one), drawing), history(one))
}

function header() {
  const all = parameters.model ? h('p', { class: 'path' }, h('a', { href: 'models' }, 'Models'), ' / ') : null
  const about = parameters.model ? '' : 'The champion of each registered model and how it became so, and the leaderboards.'
  return h('header', {}, all, h('h1', {}, parameters.model || 'Models'), h('p', { class: 'muted' }, about))
}

function champions({ models }) {
  if (models.length) return models.map(section)
  return h('p', { class: 'empty' }, parameters.model ? 'No run that you may read says anything of this model.'
    : 'No model is registered yet. The Dag retrain registers each model that has passed the gate and the comparison with the champion.')
}

async function refresh() {
  const found = await fetchJson('models', { model: parameters.model })
  const boards = parameters.model ? { tasks: [] } : await fetchJson('leaderboards', { run: parameters.leaderboard })
  if (!document.getElementById('models')) show('page', header(), h('div', { id: 'models' }), h('div', { id: 'leaderboards' }))
  renew('models', found, champions)
  renew('leaderboards', boards, leaderboards)
}

repeat(refresh, () => PAUSE)
