// The emulator as a backend of the runtime.
//
// In: launches of a plan. Out: the kernels run by cell_emu_launch. Guaranteed: a launch that a GPU would
// refuse gives a status and the sentence; what a kernel does wrong ends the process with a report.
#include "cell_backend.h"
#include "cell_emu.h"

extern "C" cell_status cell_emulator_launch(const cell_launch *launch, cell_error *err)
{
    char message[512];
    const cell_kernel *kernel = launch->kernel;
    if (cell_emu_launch(kernel->symbol, kernel->name, launch->args, launch->grid, (uint32_t)launch->threads,
                        launch->smem, kernel->cluster > 0 ? (uint32_t)kernel->cluster : 0,
                        kernel->cooperative, message, sizeof message))
        return cell_fail(err, CELL_BACKEND_FAILED, "%s", message);
    return CELL_OK;
}
