// Package hostile is what fuzz targets of whole connections are made of: a
// script that bytes stand for, and a WebSocket peer that has every byte in its
// hand. It works inside synctest bubbles.
package hostile
