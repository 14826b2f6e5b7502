// The page of a run: live while it trains, and its evaluation afterwards.
import { h, show } from './elements.js'
import { address, airflowLink, fetchJson, repeat, whichRun } from './page.js'
import { formatted, runName, score, seconds, state } from './format.js'
import { Curves } from './curves.js'
import { evaluation } from './evaluation.js'
import { tile } from './parts.js'
import { Timeline } from './timeline.js'

const LIVE = 2 // seconds between two looks at a run that is running
const LATER = 15 // seconds between two looks at one that is not
const curves = new Curves()
const timeline = new Timeline()
let evaluated = null
let traced = null
let now = null

function layout() {
  show('page',
    h('header', { id: 'head' }),
    h('div', { id: 'message' }),
    h('section', { id: 'tiles', class: 'tiles' }),
    h('section', { id: 'stages' }, timeline.element),
    h('section', { id: 'curves', hidden: true }, h('h2', {}, 'Training'), curves.element),
    h('section', { id: 'evaluation' }),
    h('section', { id: 'fields' }),
  )
}

function head(run) {
  document.title = `${runName(run.run, run.dag_id, run.run_id)} · Quality`
  return [
    h('p', { class: 'path' }, h('a', { href: 'runs' }, 'Quality'), ' / ', run.dag_id ? h('a', { href: address('runs', { dag: run.dag_id }) }, run.dag_id) : 'command line'),
    h('h1', {}, runName(run.run, run.dag_id, run.run_id), ' ', state(run.state)),
    h('p', { class: 'about' }, run.about.join(' · ')),
    h('div', { class: 'links' },
      run.dag_id ? airflowLink(`/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.run_id.split('[')[0])}`, 'Open in Airflow') : null,
      run.stages.some(({ stage }) => stage === 'search') ? h('a', { href: address('search', { run: run.run }) }, 'Trials of the search') : null,
      run.files.map((file) => h('a', { href: file.href, title: `made by ${file.stage}` }, file.title)),
    ),
  ]
}

/** Why stages did not succeed, or refused some of their files. */
function messages(run) {
  return run.stages.filter(({ message }) => message).map((stage) => h('p', { class: `message ${stage.state}` }, h('b', {}, stage.stage), ': ', stage.message))
}

function tiles(run) {
  const under = run.stages.find(({ stage, state }) => state === 'running' && (stage === 'train' || stage === 'pretrain'))
  const facts = run.facts.map(({ title, kind, value }) => tile(title, formatted(value, kind)))
  const main = run.score === null ? null : tile(run.metric || 'score', score(run.score), 'score')
  return [main, under ? progress(under) : null, ...facts]
}

/** How far a training is, and when it will end. */
function progress(stage) {
  const { step, planned, left } = curves.progress(stage.planned_steps)
  if (!step) return tile(stage.stage, 'starting', 'progress')
  const share = planned ? step / planned : null
  return h('div', { class: 'tile progress' },
    h('span', { class: 'title' }, left === null ? stage.stage : `${stage.stage}, about ${seconds(left)} left`),
    h('span', { class: 'value' }, planned ? `${Math.floor(100 * share)} %` : `step ${step}`),
    planned ? h('progress', { value: step, max: planned }, `${step} of ${planned} steps`) : null)
}

function fields(run) {
  const found = Object.entries(run.fields)
  return [
    h('h2', {}, 'Experiment'),
    found.length
      ? h('dl', { class: 'fields' }, found.map(([name, value]) => [h('dt', {}, name), h('dd', {}, formatted(value, 'value'))]))
      : h('p', { class: 'muted' }, 'Every field has its default value.'),
    found.length ? h('p', { class: 'muted' }, 'All other fields have their default values.') : null,
  ]
}

async function refresh() {
  now = await fetchJson('run', whichRun)
  if (!document.getElementById('head')) layout()
  const found = await curves.fetch(whichRun, now.metric)
  document.getElementById('curves').hidden = !found
  show('head', head(now))
  show('message', messages(now))
  show('tiles', tiles(now))
  if (now.state === 'running' || traced !== now.changed) timeline.traces = (await fetchJson('trace', whichRun)).stages
  traced = now.changed
  timeline.update(now.stages)
  show('fields', fields(now))
  if (now.evaluation && evaluated !== now.evaluation) {
    const figures = await fetchJson('evaluation', whichRun)
    show('evaluation', await evaluation(figures, now))
    evaluated = now.evaluation
  }
}

repeat(refresh, () => (now && now.state === 'running' ? LIVE : LATER))
