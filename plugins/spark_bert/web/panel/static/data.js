// The data over time: versions of datasets and windows of streams, with their drift.
import { h, place, share, show } from './elements.js'
import { address, fetchJson, parameters, repeat } from './page.js'
import { chip, none, renew, runLink, table, when } from './parts.js'
import { count, counted, known, percent, small } from './format.js'

const PAUSE = 15 // seconds until the page is fetched again
const LEFT_OUT = { duplicate: 'twice in the files', known: 'known', conflict: 'with another label', in_dev: 'in dev', in_test: 'in test', unusable: 'unusable' }

const alone = parameters.dataset || parameters.stream

/** The figures of drift, each on a line from 0 to 1 with a mark at its limit. */
function drift(figures) {
  if (!figures.length) return h('span', { class: 'muted' }, 'not compared')
  return h('div', { class: 'drift' }, figures.map(({ name, measure, value, limit, passed }) => {
    const line = h('span', { class: 'interval' }, place(h('i'), 0, share(value ?? 0)), place(h('b'), share(limit ?? 0)))
    return h('div', { class: passed ? null : 'over', title: measure },
      h('span', {}, name), line, h('span', { class: 'number' }, `${known(value, rounded)} of ${known(limit, rounded)}`))
  }))
}

const rounded = (value) => small(Number(value.toFixed(3)))
/** A text of the data, whose direction of writing does not change that of what follows. */
const apart = (text) => h('bdi', {}, text)
const exceeded = (figures) => figures.some(({ passed }) => !passed)

function verdict({ refusal, figures, new: isNew }) {
  if (refusal) return chip('bad', 'refused')
  if (exceeded(figures)) return [chip('bad', 'drift'), h('p', { class: 'muted' }, 'too few rows to refuse')]
  return isNew ? null : chip('warn', 'no new version')
}

/** How many new rows there were, and how many rows the version has. */
function rowsOf({ counts, rows, new: isNew }) {
  const left = Object.entries(LEFT_OUT).filter(([name]) => counts[name]).map(([name, words]) => `${count(counts[name])} ${words}`)
  const splits = Object.entries(rows).map(([split, number]) => `${count(number)} ${split}`)
  return [
    h('p', {}, `${counted(counts.added ?? 0, 'new row')}${left.length ? `; left out: ${left.join(', ')}` : ''}`),
    isNew && splits.length ? h('p', { class: 'muted' }, `in all ${splits.join(', ')}`) : null,
  ]
}

function versionRow(entry, current) {
  const files = Object.entries(entry.refused).map(([name, reason]) => h('p', { class: 'wrong' }, h('b', {}, apart(name)), ' is malformed: ', apart(reason)))
  return [
    when(entry.time),
    [entry.new ? h('code', { title: entry.version }, entry.version.slice(0, 8)) : null, ' ', entry.new && entry.version === current ? chip('new', 'current') : null, ' ', verdict(entry)],
    [rowsOf(entry), entry.refusal ? h('p', { class: 'wrong' }, entry.refusal) : null, files],
    drift(entry.figures),
    [runLink(entry), entry.data_docs ? h('p', {}, h('a', { href: entry.data_docs }, 'Data Docs')) : null],
  ]
}

function dataset({ dataset: name, current, looked, versions, total }) {
  return section(name, `looked for new rows ${when(looked)}`, versions.length < total ? ['dataset', total, 'versions'] : null,
    versions.length
      ? table('history', [['When', 'nowrap'], ['Version', 'nowrap'], ['Rows', 'what'], ['Drift from the version before', 'wide'], ['Run', 'nowrap']], versions.map((entry) => versionRow(entry, current)))
      : h('p', { class: 'muted' }, 'No run that is still there has added rows.'))
}

function windowRow({ first, last, time, rows, model_version: model, labels, scores, confidence, figures, made_by: run }) {
  const answers = [
    ...Object.entries(labels).map(([label, share]) => [apart(label), ` ${percent(share)}`]),
    ...Object.entries(scores).map(([name, value]) => [name.replaceAll('_', ' '), ` ${small(value)}`]),
    typeof confidence === 'number' ? ['mean confidence', ` ${percent(confidence)}`] : [],
  ]
  return [
    when(time), [first === last ? `batch ${first}` : `batches ${first} to ${last}`, ' ', exceeded(figures) ? chip('bad', 'drift') : null],
    [h('p', {}, `${count(rows)} rows, labeled by ${model || 'an unknown model'}`),
      h('p', { class: 'muted' }, answers.filter((one) => one.length).map((one, at) => [at ? ', ' : '', one]))],
    drift(figures), run ? runLink(run) : none(),
  ]
}

function stream({ stream: name, windows, total }) {
  return section(name, 'stream', windows.length < total ? ['stream', total, 'windows'] : null,
    table('history', [['When', 'nowrap'], ['Window', 'nowrap'], ['Rows', 'what'], ['Drift from the training rows', 'wide'], ['Run', 'nowrap']], windows.map(windowRow)))
}

/** A section with a heading, and a link to all entries unless the page shows them already. */
function section(name, about, more, content) {
  const all = more && !alone ? h('a', { class: 'more', href: address('data', { [more[0]]: name }) }, `all ${count(more[1])} ${more[2]}`) : null
  return h('section', {}, h('h2', {}, name, h('span', { class: 'muted' }, ` ${about} `), all), content)
}

function all({ datasets, streams }) {
  if (datasets.length || streams.length) return [datasets.map(dataset), streams.map(stream)]
  return h('p', { class: 'empty' }, alone ? 'No run that you may read says anything of these data.'
    : 'There is no version of a dataset yet. The Dag retrain makes one of the files that arrive in its drop folder, and the Dag stream compares the rows that it labels with the training.')
}

async function refresh() {
  const found = await fetchJson('data', { dataset: parameters.dataset, stream: parameters.stream })
  if (!document.getElementById('data')) {
    const path = alone ? h('p', { class: 'path' }, h('a', { href: 'data' }, 'Data'), ' / ') : null
    show('page', h('header', {}, path, h('h1', {}, 'Data'), h('p', { class: 'muted' }, 'Versions of datasets and windows of streams, each compared with the training rows before it.')), h('div', { id: 'data' }))
  }
  renew('data', found, all)
}

repeat(refresh, () => PAUSE)
