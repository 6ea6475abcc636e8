#include "base/error.h"

#include <cstring>

namespace dslaunch {

const char* exit_code_name(ExitCode code) {
    switch (code) {
        case ExitCode::kOk:
            return "ok";
        case ExitCode::kUsage:
            return "usage";
        case ExitCode::kConfig:
            return "config";
        case ExitCode::kInput:
            return "input";
        case ExitCode::kHosts:
            return "hosts";
        case ExitCode::kRankFailed:
            return "rank-failed";
        case ExitCode::kHang:
            return "hang";
        case ExitCode::kInternal:
            return "internal";
        case ExitCode::kSetup:
            return "setup";
        case ExitCode::kDisk:
            return "disk";
        case ExitCode::kCheckpoint:
            return "checkpoint";
        case ExitCode::kDiverged:
            return "diverged";
        case ExitCode::kPeerLost:
            return "peer-lost";
        case ExitCode::kInterrupted:
            return "interrupted";
    }
    return "unknown";
}

bool is_own_code(uint32_t code) {
    return code >= static_cast<uint32_t>(ExitCode::kUsage) &&
           code <= static_cast<uint32_t>(ExitCode::kInterrupted);
}

std::string errno_text(int error_number) {
    const char* name = strerrorname_np(error_number);
    const char* text = strerrordesc_np(error_number);
    if (name == nullptr || text == nullptr) return fmt::format("errno {}", error_number);
    return fmt::format("{} ({})", text, name);
}

}  // namespace dslaunch
