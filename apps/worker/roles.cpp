#include "worker/roles.h"

#include "base/error.h"
#include "base/option_name.h"

#include <cstdio>
#include <string>
#include <vector>

namespace dslaunch {

bool parse_arguments(CLI::App& app, int argc, char** argv) {
    std::vector<std::string> arguments;  // CLI11 wants them last first
    for (int i = argc - 1; i > 0; --i) arguments.push_back(with_dashes(argv[i]));
    try {
        app.parse(arguments);
    } catch (const CLI::CallForHelp&) {
        std::fputs(app.help().c_str(), stdout);
        return false;
    } catch (const CLI::ParseError& error) {
        fail(ExitCode::kUsage, "dsworker {}: {} (--help lists the options)", app.get_name(),
             error.what());
    }
    return true;
}

}  // namespace dslaunch
