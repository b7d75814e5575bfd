#include <stdlib.h>

#include "client.h"

struct grpc_arg_stack {
    size_t count, most;
    void *arguments[MOST_ARGUMENTS];
};

grpc_arg_stack_t *grpc_arg_stack_new(int most)
{
    if (most < 0 || most > MOST_ARGUMENTS) {
        fail(GRPC_OTHER_ERROR_CODE, "a stack has %d arguments at most", MOST_ARGUMENTS);
        return NULL;
    }
    grpc_arg_stack_t *stack = calloc(1, sizeof *stack);
    if (stack == NULL)
        fail(GRPC_OTHER_ERROR_CODE, "there is no memory");
    else
        stack->most = (size_t)most;
    return stack;
}

int grpc_arg_stack_push_arg(grpc_arg_stack_t *stack, void *argument)
{
    if (stack == NULL || stack->count == stack->most) {
        fail(GRPC_OTHER_ERROR_CODE, "there is no room in the stack");
        return -1;
    }
    stack->arguments[stack->count++] = argument;
    return 0;
}

void *grpc_arg_stack_pop_arg(grpc_arg_stack_t *stack)
{
    if (stack == NULL || stack->count == 0)
        return NULL;
    return stack->arguments[--stack->count];
}

int grpc_arg_stack_destruct(grpc_arg_stack_t *stack)
{
    if (stack == NULL)
        return -1;
    free(stack);
    return 0;
}

const char *values_of_stack(const struct description *description, struct values *values, const grpc_arg_stack_t *stack)
{
    if (stack == NULL || stack->count != description->count)
        return "the stack has another number of arguments";
    for (size_t i = 0; i < stack->count; i++) {
        if (stack->arguments[i] == NULL)
            return "an argument is NULL";
    }
    values_of_pointers(description, values, stack->arguments);
    return NULL;
}
