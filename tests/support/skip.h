// How a test says that it cannot run on this machine. tools/test.sh collects these lines from all
// test programs and prints them at the end of `make test`.
#pragma once

#include <cstdio>
#include <string>

namespace dslaunch::test {

// Prints "SKIPPED: WHAT because WHY". WHAT names what goes unproved, WHY what is missing here and
// how to get it. The caller returns from the test case after it. Any thread.
inline void report_skipped(const std::string& what, const std::string& why) {
    std::printf("SKIPPED: %s because %s\n", what.c_str(), why.c_str());
    std::fflush(stdout);
}

}  // namespace dslaunch::test
