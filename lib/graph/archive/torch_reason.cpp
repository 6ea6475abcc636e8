#include "graph/archive/torch_reason.h"

#include "base/text.h"

namespace dslaunch::graph {

// The last "RuntimeError" line says what, the last "File" line (of the original code) where.
std::string torch_reason(const std::string& text) {
    std::string what;
    std::string where;
    for (const std::string& raw : split(text, '\n')) {
        const std::string line(trim(raw));
        if (line.rfind("Exception raised from", 0) == 0) break;
        if (what.empty() || line.rfind("RuntimeError: ", 0) == 0) what = line;
        if (line.rfind("File \"", 0) == 0) where = line;
    }
    return printable(where.empty() ? what : what + " [" + where + "]");
}

}  // namespace dslaunch::graph
