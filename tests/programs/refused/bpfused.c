/*
 * A BPF map that a program in the kernel uses, which would go on with the old one.
 */
#include "../bpf.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int map = new_map(BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0, "");
	struct bpf_insn code[] = {
		{ .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = BPF_REG_1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map },
		{ 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attributes = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insns = (uintptr_t)code,
				      .insn_cnt = sizeof code / sizeof *code, .license = (uintptr_t)"GPL" };
	int program = (int)bpf(BPF_PROG_LOAD, &attributes);
	if (program < 0)
		conform_skip("this kernel or user has no such program");
	conform_expect_refusal(getpid(), map);
	conform_ready();
	conform_wait();
	EXPECT("program is still there", fcntl(program, F_GETFD) >= 0, 1);
	conform_pass();
}
