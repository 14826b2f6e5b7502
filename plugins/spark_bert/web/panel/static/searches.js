// The searches for better settings: how far each is, its best trial, and what it recommends.
import { h, show } from './elements.js'
import { address, fetchJson, repeat } from './page.js'
import { none, renew, runLink, table, when } from './parts.js'
import { count, known, seconds, state } from './format.js'
import { verdict } from './recommendation.js'

const PAUSE = 4 // seconds until the page is fetched again

function list({ searches }) {
  if (!searches.length) return h('p', { class: 'empty' }, 'There is no search yet. Trigger the Dag tune, or run make tune, and it appears here within seconds.')
  return table('searches', [['Search', 'nowrap'], ['State', 'nowrap'], ['Task', 'nowrap'], ['Trials', 'number'], ['Best trial', 'number'], ['', 'nowrap'], ['Recommended', 'nowrap'], ['Spent', 'number'], ['Run', 'nowrap'], ['Changed', 'nowrap']],
    searches.map((one) => [
      h('a', { href: address('search', { run: one.run }) }, one.search), state(one.state), one.task, count(one.trials), h('b', {}, known(one.best)), one.metric,
      one.recommended ? verdict(one.recommended) : none(), seconds(one.seconds), runLink(one), when(one.changed)]))
}

async function refresh() {
  const found = await fetchJson('searches')
  if (!document.getElementById('searches')) show('page', h('header', {}, h('h1', {}, 'Searches'), h('p', { class: 'muted' }, 'Each search tries settings of an experiment until its minutes are spent, and recommends those of its best trial if they are better than the experiment’s own.')), h('div', { id: 'searches' }))
  renew('searches', found, list)
}

repeat(refresh, () => PAUSE)
