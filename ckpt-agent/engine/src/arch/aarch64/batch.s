// Source of the stub BATCH and of ENTER_KERNEL, for the test that compares their bytes.
    .text
again:
    ldr x8, [x19]
    ldp x0, x1, [x19, #8]
    ldp x2, x3, [x19, #24]
    ldp x4, x5, [x19, #40]
    svc #0
    str x0, [x19, #56]
    add x19, x19, #64
    subs x20, x20, #1
    b.ne again
    brk #0
    svc #0
