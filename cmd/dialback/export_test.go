package main

// What tests see of this package.
const DrainTime = drainTime

var Drain = drain
