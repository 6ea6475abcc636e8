#include "job/process/rank_failure.h"

#include "base/machine/memory_shortage.h"
#include "base/text/torch_reason.h"

namespace dslaunch::job {

RankFailure failure_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const Error& known) {
        return {known.code(), known.what()};
    } catch (const std::exception& other) {
        if (is_memory_shortage(other))
            return {ExitCode::kSetup, memory_shortage_text(torch_reason(other))};
        return {ExitCode::kInternal, torch_reason(other)};
    }
}

}  // namespace dslaunch::job
