/*
 * Files outside of the session directory whose owner has withdrawn all rights to them since they were opened; see the included file.
 *
 * conform: work=/var/tmp
 */
#include "withdrawnrights.inc"
