// dsworker ROLE …: the program that contains LibTorch. Finds the role, runs it, and turns its error
// into an exit code.
#include <c10/util/Exception.h>
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/files_of_process.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/torch_reason.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

struct Role {
    const char* name;
    int (*run)(int argc, char** argv);
    const char* help;
};

constexpr Role kRoles[] = {
    {"compress", compress_main, "write a model with weights of fewer bits"},
    {"data", data_main, "make rows of tokens from lines of text"},
    {"eval", eval_main, "evaluate a language model: held-out loss, multiple choice"},
    {"export", export_main, "write a checkpoint's weights into an archive (dslaunch ckpt export)"},
    {"generate", generate_main, "continue a prompt with a trained language model"},
    {"health", health_main, "run one rank of a health check (dslaunch health starts it)"},
    {"model", model_main, "make a new model: model new gpt, model new mlp"},
    {"plan", plan_main, "print segments, instructions and memory of a training step"},
    {"serve", serve_main, "serve a language model over HTTP"},
    {"train", train_main, "train one rank of a job (dslaunch starts it)"},
};

void print_usage(std::FILE* out) {
    std::fputs("usage: dsworker ROLE [options]\n", out);
    for (const Role& role : kRoles) std::fprintf(out, "  %-10s %s\n", role.name, role.help);
}

int dispatch(int argc, char** argv) {
    // With SIGXFSZ ignored, a write that meets a file size limit returns an error, as on a full
    // disk.
    std::signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        print_usage(stderr);
        return static_cast<int>(ExitCode::kUsage);
    }
    const std::string_view name = argv[1];
    if (name == "--help" || name == "-h") {
        print_usage(stdout);
        return 0;
    }
    for (const Role& role : kRoles)
        if (name == role.name) return role.run(argc - 1, argv + 1);
    fail(ExitCode::kUsage, "dsworker has no role \"{}\" (dsworker --help lists them)",
         printable(name));
}

// Reports the error MESSAGE under the name that the user typed: `dslaunch plan`, `model` and
// `generate` start this program under the name dslaunch.
void tell(const char* program, const std::string& message) {
    if (program != nullptr && std::string_view(program) == "dslaunch") {
        print_message(fmt::format("dslaunch: error: {}", printable_lines(message, 0)));
    } else {
        log_error("worker", "{}", message);
    }
}

}  // namespace
}  // namespace dslaunch::worker

int main(int argc, char** argv) {
    using namespace dslaunch;
    using namespace dslaunch::worker;
    auto code = static_cast<int>(ExitCode::kInternal);
    remove_files_at_signals();
    try {
        code = dispatch(argc, argv);
        // Results that could not be written are not a success.
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
            fail(ExitCode::kDisk, "the output cannot be written: {}", errno_text(errno));
    } catch (const Error& error) {
        tell(argv[0], error.what());
        code = static_cast<int>(error.code());
    } catch (const c10::Error& error) {
        tell(argv[0], fmt::format("LibTorch: {}", torch_reason(error)));
    } catch (const std::exception& error) {
        tell(argv[0], torch_reason(error));
        if (std::ferror(stdout) != 0) code = static_cast<int>(ExitCode::kDisk);
    }
    // Returning would make LibTorch destroy its tables of operators, which takes longer than many
    // commands.
    std::fflush(nullptr);
    ::_exit(code);
}
