// The dev rows of a run, filtered by label, prediction, and words. The filters are in the address.
import { h, show } from './elements.js'
import { address, fetchJson, parameters, repeat, whichRun } from './page.js'
import { runName } from './format.js'
import { pager, rowsTable } from './table.js'

function open(changes) {
  const { page, ...kept } = parameters
  location.assign(address('rows', { ...kept, ...changes }))
}

function filters({ confusion, classes, labels: several, slices }) {
  const labels = confusion ? Object.keys(classes) : []
  const choose = (name, all, values) => h('select', { 'aria-label': all, onchange: (event) => open({ [name]: event.target.value }) },
    h('option', { value: '' }, all), values.map(([value, text]) => h('option', { value, selected: value === parameters[name] }, text)))
  const select = (name, all) => choose(name, all, labels.map((label) => [label, `${name} ${label}`]))
  return h('form', { class: 'filters', role: 'search', onsubmit: search },
    h('input', { type: 'search', name: 'q', value: parameters.q || '', placeholder: 'Find words', 'aria-label': 'Find words' }),
    labels.length ? [select('label', 'Any label'), select('prediction', 'Any prediction')] : null,
    choose('slice', 'All slices', Object.entries(slices || {}).map(([name, part]) => [name, part.about])),
    classes || several ? h('label', {}, h('input', { type: 'checkbox', checked: parameters.wrong === 'true', onchange: (event) => open({ wrong: event.target.checked ? 'true' : '' }) }), 'only mistakes') : null)
}

function search(event) {
  event.preventDefault()
  open({ q: event.target.elements.q.value.trim() })
}

async function refresh() {
  const [run, figures, found] = await Promise.all([fetchJson('run', whichRun), fetchJson('evaluation', whichRun), fetchJson('rows', parameters)])
  show('page',
    h('header', {},
      h('p', { class: 'path' }, h('a', { href: 'runs' }, 'Quality'), ' / ', h('a', { href: address('run', { run: run.run }) }, runName(run.run, run.dag_id, run.run_id))),
      h('h1', {}, 'Dev rows')),
    filters(figures), rowsTable(found.rows), pager('rows', found, 'row', parameters))
}

repeat(refresh, () => 0)
