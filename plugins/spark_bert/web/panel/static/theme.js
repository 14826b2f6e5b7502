// Follow the theme of Airflow's page, which is a class of the element <html> around the frame. This script is loaded
// before the page is drawn, so that a dark page does not flash.
(function () {
  const own = document.documentElement
  let outer = null
  try {
    outer = window.parent !== window ? window.parent.document.documentElement : null
  } catch {
    // Somebody else's page shows this one, and its theme is not ours to know.
  }
  const system = window.matchMedia('(prefers-color-scheme: dark)')
  function follow() {
    const classes = outer ? outer.classList : null
    const known = classes && (classes.contains('dark') || classes.contains('light'))
    own.classList.toggle('dark', known ? classes.contains('dark') : system.matches)
    own.classList.toggle('framed', outer !== null)
  }
  follow()
  system.addEventListener('change', follow)
  if (outer) new MutationObserver(follow).observe(outer, { attributes: true, attributeFilter: ['class'] })
})()
