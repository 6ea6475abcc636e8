#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

launch::TargetKind target_kind_of(const RunOptions& options) {
    if (options.target.ends_with(".pt")) return launch::TargetKind::kTorchScript;
    if (options.no_python) return launch::TargetKind::kProgram;
    if (options.module || options.target.ends_with(".py")) return launch::TargetKind::kPython;
    return launch::TargetKind::kProgram;
}

}  // namespace dslaunch::launcher
