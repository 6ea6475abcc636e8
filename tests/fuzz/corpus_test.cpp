// Runs each fuzzer's entry on its stored inputs, in any build. A fault that a fuzzer once found is
// found again, even without clang and libFuzzer.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/catch.h"

namespace fs = std::filesystem;

#define DSL_FUZZER(name) extern "C" int name(const uint8_t* data, size_t size_bytes);
#include "fuzzers.inc"
#undef DSL_FUZZER

namespace {

struct Fuzzer {
    const char* name;
    int (*entry)(const uint8_t*, size_t);
};
constexpr Fuzzer kFuzzers[] = {
#define DSL_FUZZER(name) {#name, name},
#include "fuzzers.inc"
#undef DSL_FUZZER
};

const std::string kCorpus = std::string(dslaunch::test::source_dir()) + "/tests/fuzz/corpus/";

std::vector<uint8_t> bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file.good());
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("every input that was kept passes its fuzzer, and so does none at all") {
    for (const Fuzzer& fuzzer : kFuzzers) {
        INFO(fuzzer.name);
        fuzzer.entry(nullptr, 0);
        size_t inputs_count = 0;
        for (const auto& input : fs::directory_iterator(kCorpus + fuzzer.name)) {
            const std::vector<uint8_t> bytes = bytes_of(input.path());
            INFO(input.path());
            fuzzer.entry(bytes.data(), bytes.size());
            ++inputs_count;
        }
        CHECK(inputs_count > 0);
    }
}

TEST_CASE("every folder of kept inputs belongs to a fuzzer") {
    for (const auto& folder : fs::directory_iterator(kCorpus)) {
        const std::string name = folder.path().filename().string();
        INFO(name);
        CHECK(std::any_of(std::begin(kFuzzers), std::end(kFuzzers),
                          [&](const Fuzzer& fuzzer) { return fuzzer.name == name; }));
    }
}
