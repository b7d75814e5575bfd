/*
 * All registers that a program can write, as one block, and two ways of having them for a long time: spinning and sleeping
 * in a system call. Each processor has a file of its own, which names the layout of the block.
 *
 * registers_spin loads all of them from a block, looks at registers_stop until it is not 0, and stores all of them to
 * another block. registers_read does the same, but calls read(2) for one byte from registers_fd in between.
 */
#ifndef REGISTERS_H
#define REGISTERS_H

#include "conform.h"

extern volatile int registers_stop, registers_fd;
extern char registers_byte[8];

/* By assembly code. */
void registers_spin(const void *loaded, void *stored);
void registers_read(const void *loaded, void *stored);

#if defined(__x86_64__)
#include "registers-x86_64.inc"
#elif defined(__i386__)
#include "registers-i386.inc"
#elif defined(__aarch64__)
#include "registers-aarch64.inc"
#elif defined(__arm__)
#include "registers-arm.inc"
#else
#error "registers of this processor"
#endif

#endif
