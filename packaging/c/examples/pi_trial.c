/* Counts of so many random points of a square those within the circle: four times their part is about pi. */
#include <stdint.h>

static double next(uint64_t *state)
{
    uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((value ^ (value >> 31)) >> 11) / 9007199254740992.0;
}

void pi_trial(int seed, long times, long *count)
{
    uint64_t state = (uint64_t)(uint32_t)seed << 32;
    long inside = 0;
    for (long i = 0; i < times; i++) {
        double x = next(&state), y = next(&state);
        inside += x * x + y * y <= 1.0;
    }
    *count = inside;
}
