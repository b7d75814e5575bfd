/* For programs that 'ckptd farm register --stub' has written: they run the functions of a module. */
#ifndef CKPTD_FARM_STUB_H
#define CKPTD_FARM_STUB_H

#ifdef __cplusplus
extern "C" {
#endif

struct ckptd_farm_function {
    const char *name;
    /* Calls it with these arguments. */
    void (*call)(void **values);
    /* Its arguments, as they are registered. */
    const char *arguments;
};

/* Runs the function and the call that the command line names: PROGRAM MODULE/FUNCTION FOLDER. The exit status. */
int ckptd_farm_stub_main(int argc, char **argv, const struct ckptd_farm_function *functions);

#ifdef __cplusplus
}
#endif

#endif
