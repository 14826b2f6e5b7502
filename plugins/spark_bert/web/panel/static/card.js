// A card for Airflow's dashboard: the latest runs. Airflow lends its React and its components; nothing is built.
import { counted } from './format.js'

const { React, ChakraUI } = globalThis
const h = React.createElement
const PAUSE = 4000 // ms
const here = new URL('..', import.meta.url)
const panel = `${new URL('plugin/quality', document.baseURI).pathname}${here.pathname}`

function useRuns() {
  const [answer, setAnswer] = React.useState({ rows: [] })
  React.useEffect(() => {
    let timer
    async function ask() {
      if (!document.hidden) {
        const found = await fetch(new URL('api/runs?size=5&columns=data.task,model.name,score', here)).catch(() => null)
        if (found?.ok) setAnswer(await found.json())
      }
      timer = setTimeout(ask, PAUSE)
    }
    ask()
    return () => clearTimeout(timer)
  }, [])
  return answer
}

const COLOURS = { running: 'blue', done: 'green', failed: 'red', refused: 'red', stopped: 'yellow' }

function Line({ row }) {
  const [task, encoder, score] = row.values
  return h(ChakraUI.HStack, { gap: 3, py: 1, borderTopWidth: 1, fontSize: 'sm' },
    h(ChakraUI.Badge, { colorPalette: COLOURS[row.state], minW: 16, justifyContent: 'center' }, row.state),
    h(ChakraUI.Link, { href: `${panel}run?run=${encodeURIComponent(row.run)}`, flex: 1, truncate: true, color: 'fg.info' }, `${task}, ${encoder}`),
    h(ChakraUI.Text, { fontVariantNumeric: 'tabular-nums' }, typeof score === 'number' ? `${row.metric} ${score.toFixed(4)}` : '–'))
}

globalThis.AirflowPlugin = function Quality() {
  const { rows, all, running } = useRuns()
  if (!rows.length) return null
  return h(ChakraUI.Box, { order: 3, borderWidth: 1, borderRadius: 'lg', p: 4, mt: 4, 'data-testid': 'quality-card' },
    h(ChakraUI.HStack, { justifyContent: 'space-between', pb: 2 },
      h(ChakraUI.Heading, { size: 'md' }, 'Quality'),
      h(ChakraUI.Link, { href: `${panel}runs`, color: 'fg.info', fontSize: 'sm' }, `${counted(all, 'run')}${running ? `, ${running} running` : ''}`)),
    rows.map((row) => h(Line, { row, key: row.run })))
}
