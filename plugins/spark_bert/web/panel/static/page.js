// What all pages share: their addresses and navigation, fetching JSON, and fetching it again and again.
import { h, show } from './elements.js'

/** The address of a page or of a route: its name, and the parameters that are not empty. A list is repeated. */
export function address(name, parameters = {}) {
  const found = Object.entries(parameters).flatMap(([key, value]) => [value].flat().map((one) => [key, one])).filter(([, value]) => value !== '' && value !== null && value !== undefined)
  return found.length ? `${name}?${new URLSearchParams(found)}` : name
}

/** The parameters of this page's address. */
export const parameters = Object.fromEntries(new URLSearchParams(location.search))

/** Open a page with other parameters. Each is a page load of its own, which Airflow copies into its address. */
export function open(name, changes) {
  const { page, ...kept } = parameters
  location.assign(address(name, { ...kept, ...changes }))
}

/** The parameters that name the run of this page. */
export const whichRun = Object.fromEntries(['run', 'dag_id', 'run_id', 'map_index'].filter((key) => parameters[key]).map((key) => [key, parameters[key]]))

/** The pages that a reader can begin with; all others belong to the first. */
const NAVIGATION = { runs: 'Runs', searches: 'Searches', models: 'Models', data: 'Data' }

function navigation() {
  const page = location.pathname.split('/').at(-1)
  const here = page in NAVIGATION ? page : page === 'search' ? 'searches' : 'runs'
  return h('nav', { class: 'pages', 'aria-label': 'Quality' },
    Object.entries(NAVIGATION).map(([name, title]) => h('a', { href: name, 'aria-current': name === here ? 'page' : null }, title)))
}

document.body.prepend(navigation())

class Refused extends Error {}

/** Fetch the JSON of a route. Throw Refused if it does not help to ask again. */
export async function fetchJson(route, query = {}) {
  const answer = await fetch(address(`api/${route}`, query), { headers: { Accept: 'application/json' } })
  if (answer.ok) return answer.json()
  if (answer.status === 401 || answer.status === 403)
    throw new Refused('Your login has ended. Reload the page in your browser to log in again.')
  const detail = await answer.json().then((body) => body.detail, () => '')
  const message = typeof detail === 'string' && detail ? detail : `The server answered ${answer.status}.`
  throw answer.status < 500 ? new Refused(message) : new Error(message)
}

/** Run a function, and again `seconds()` after each end, while the page is visible. Errors are told, and tried again. */
export function repeat(work, seconds) {
  async function next() {
    if (!document.hidden) {
      try {
        await work()
        show('notice')
      } catch (error) {
        notify(error instanceof Refused ? error.message : `No news from the server (${error.message}). Trying again.`)
        if (error instanceof Refused) return
      }
    }
    const pause = seconds()
    if (pause) setTimeout(next, pause * 1000)
  }
  return next()
}

/** Tell the reader something at the top of the page. */
function notify(message) {
  show('notice', h('p', { class: 'notice', role: 'status' }, message))
}

/** A link to a page of Airflow, which opens in the page around this frame. */
export function airflowLink(path, text) {
  function open(event) {
    if (window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return
    event.preventDefault()
    const base = new URL(window.parent.document.baseURI).pathname.replace(/\/$/, '')
    window.parent.history.pushState({}, '', base + path)
    window.parent.dispatchEvent(new PopStateEvent('popstate', { state: {} }))
  }
  return h('a', { href: `../..${path}`, onclick: open }, text)
}
