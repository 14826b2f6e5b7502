// The dev rows of a run, filtered by label, prediction, and words. The filters are in the address.
import { h, show } from './elements.js'
import { fetchJson, open, parameters, repeat, whichRun } from './page.js'
import { filters, runLink, select } from './parts.js'
import { pager, rowsTable } from './table.js'

function filter({ confusion, classes, labels: several, slices }) {
  const labels = confusion ? Object.keys(classes) : []
  const label = (name, all) => select('rows', name, all, labels.map((one) => [one, `${name} ${one}`]))
  return filters('rows', 'Find words',
    labels.length ? [label('label', 'Any label'), label('prediction', 'Any prediction')] : null,
    select('rows', 'slice', 'All slices', Object.entries(slices || {}).map(([name, part]) => [name, part.about])),
    classes || several ? h('label', {}, h('input', { type: 'checkbox', checked: parameters.wrong === 'true', onchange: (event) => open('rows', { wrong: event.target.checked ? 'true' : '' }) }), 'only mistakes') : null)
}

async function refresh() {
  const [run, figures, found] = await Promise.all([fetchJson('run', whichRun), fetchJson('evaluation', whichRun), fetchJson('rows', parameters)])
  show('page',
    h('header', {},
      h('p', { class: 'path' }, h('a', { href: 'runs' }, 'Quality'), ' / ', runLink(run)),
      h('h1', {}, 'Dev rows')),
    filter(figures), rowsTable(found.rows), pager('rows', found, 'row', parameters))
}

repeat(refresh, () => 0)
