package relay

// NodeMAC lets tests see what the authentication of node calls binds.
var NodeMAC = (*Server).nodeMAC
