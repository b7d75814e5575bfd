/*
 * Names that are no UTF-8, outside of the session directories.
 *
 * conform: work=/var/tmp
 */
#include "bytenames.inc"
