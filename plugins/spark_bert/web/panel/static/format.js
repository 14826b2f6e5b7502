// How values are written.
import { h } from './elements.js'

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 })
const short = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 4 })

export const number = (value) => (Math.abs(value) >= 1000 ? whole.format(value) : short.format(value))
export const score = (value) => value.toFixed(4)
export const percent = (value) => `${(100 * value).toFixed(1)} %`
export const count = (value) => whole.format(value)
export const signed = (value, digits = 4) => `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(digits)}`
/** A value that may not be known. */
export const known = (value, write = score) => (typeof value === 'number' ? write(value) : '–')
/** A number of things whose plural ends in s, such as "1 run". */
export const counted = (value, thing) => `${count(value)} ${value === 1 ? thing : `${thing}s`}`

export function small(value) {
  if (Number.isInteger(value)) return whole.format(value)
  return Math.abs(value) < 0.001 ? value.toExponential(1) : short.format(value)
}

export function bytes(value) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let at = 0
  while (Math.abs(value) >= 1000 && at < units.length - 1) {
    value /= 1000
    at += 1
  }
  return `${at ? short.format(Number(value.toPrecision(3))) : value} ${units[at]}`
}

export function seconds(value) {
  if (value < 1) return '< 1 s'
  if (value < 9.95) return `${short.format(Number(value.toPrecision(2)))} s`
  // Each unit is rounded before the next larger one is taken from it, so that 119.7 s are 2 min 0 s.
  const whole = Math.round(value)
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`
  const minutes = Math.round(value / 60)
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
  const hours = Math.round(value / 3600)
  return `${Math.floor(hours / 24)} d ${hours % 24} h`
}

export function time(value) {
  const date = new Date(value * 1000)
  const today = date.toDateString() === new Date().toDateString()
  const year = date.getFullYear() === new Date().getFullYear() ? undefined : 'numeric'
  const day = date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year })
  return today ? `today, ${clock(date)}` : `${day}, ${clock(date)}`
}

const clock = (date) => date.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })

/** A time as an axis needs it, where ticks are a number of seconds apart. */
export function tick(value, apart) {
  const date = new Date(value * 1000)
  return apart < 86400 ? clock(date) : date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })
}

/** Seconds since the start of a run, such as 1:02:03, as precise as a step between two of them. */
export function elapsed(value, step) {
  const digits = step < 1 ? Math.ceil(-Math.log10(step)) : 0
  const rounded = Number(Math.abs(value).toFixed(digits))
  const pad = (number, width) => number.toFixed(width > 2 ? digits : 0).padStart(width, '0')
  const [hours, minutes] = [Math.floor(rounded / 3600), Math.floor((rounded % 3600) / 60)]
  const rest = pad(rounded % 60, digits ? 3 + digits : 2)
  return `${value < 0 && rounded ? '−' : ''}${hours ? `${hours}:${pad(minutes, 2)}` : minutes}:${rest}`
}

/** A state with its mark; that of a running one moves. */
export const state = (value) => h('span', { class: `state ${value}` }, h('span', { class: 'dot' }), value)

/** The name of a run as people say it: what started it, and when. */
export function runName(run, dag, id) {
  if (!dag) return run
  const parts = id.match(/^([a-z_]+?)__(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)[^[]*(\[\d+\])?/)
  return parts ? `${parts[1].replaceAll('_', ' ')} ${parts[2]} ${parts[3]} ${parts[4] ?? ''}`.trim() : id
}

const KINDS = { number, score, bytes, seconds, time, share: percent, state }

/** The value of a column as text or as an element. */
export function formatted(value, kind) {
  if (value === null || value === undefined) return h('span', { class: 'none' }, '–')
  if (kind === 'passed') return h('span', { class: value ? 'chip good' : 'chip bad' }, value ? 'passed' : 'failed')
  if (kind in KINDS && (kind === 'state' || typeof value === 'number')) return KINDS[kind](value)
  if (typeof value === 'number') return String(value)
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

export const isNumeric = (kind) => ['number', 'score', 'bytes', 'seconds', 'share'].includes(kind)
