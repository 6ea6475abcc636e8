// The line with which a test reports that it cannot run on this machine. tools/test.sh collects
// these lines from all test programs and prints them at the end of `make test`.
#pragma once

#include <cstdio>
#include <string>

namespace dslaunch::test {

// Prints "SKIPPED: WHAT because WHY". WHAT names the claim that is not tested. WHY names the
// missing thing and how to get it; only its first line is printed. The caller returns from the test
// case afterwards. Any thread.
inline void report_skipped(const std::string& what, const std::string& why) {
    const std::string line = why.substr(0, why.find('\n'));
    std::printf("SKIPPED: %s because %s\n", what.c_str(), line.c_str());
    std::fflush(stdout);
}

}  // namespace dslaunch::test
