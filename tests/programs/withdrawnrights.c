/* Files in the session directory whose owner has withdrawn all rights to them since they were opened; see the included file. */
#include "withdrawnrights.inc"
