/* Names that are no UTF-8, in a session directory. */
#include "bytenames.inc"
