// libFuzzer: the small grammars of options and files, by the first byte: lists of processors, where
// places where a launcher listens, ProxyJump, patterns of host names, words in quotes, host names,
// what nvidia-smi prints.
// Each is refused or means what an independent reading, or its own written form, says.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/words.h"
#include "fuzz/error_checks.h"
#include "launch/hosts/hostfile.h"
#include "launch/machine/gpu_use.h"
#include "launch/machine/machine_topology.h"
#include "launch/transport/join/join_endpoint.h"
#include "launch/transport/ssh/ssh_config.h"
#include "launch/transport/ssh/ssh_target.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;

constexpr int kProcessorMax = 65'535;
constexpr int kPortMax = 65'535;
// The letters of names and of IPv6 addresses without their brackets.
constexpr std::string_view kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:";

void try_processors(std::string_view text) {
    const auto list = parse_processor_list(text);
    if (!list) return;
    DSL_CHECK(!list->empty() && list->front() >= 0 && list->back() <= kProcessorMax, "bounded");
    for (size_t i = 1; i < list->size(); ++i) DSL_CHECK((*list)[i - 1] < (*list)[i], "ascending");
    DSL_CHECK(parse_processor_list(processor_list_text(*list)) == list, "read back");
}

void try_endpoint(std::string_view text) {
    const JoinEndpoint endpoint = parse_join_endpoint(text);
    DSL_CHECK(endpoint.is_unix() || (endpoint.port >= 1 && endpoint.port <= kPortMax), "a port");
    const JoinEndpoint again = parse_join_endpoint(endpoint.text());
    DSL_CHECK(again.unix_path == endpoint.unix_path && again.host == endpoint.host &&
                  again.port == endpoint.port,
              "{} is read back", endpoint.text());
}

void try_proxy_jump(std::string_view text) {
    const auto jumps = parse_proxy_jump(std::string(text), "file:1");
    const std::vector<std::string> entries = split(text, ',');
    DSL_CHECK(jumps.size() == entries.size(), "a host for each entry");
    for (size_t i = 0; i < jumps.size(); ++i) {
        const HostAddress& jump = jumps[i];
        const size_t before_port = entries[i].find_last_not_of("0123456789");
        DSL_CHECK(jump.port == 0 || entries[i].at(before_port) == ':', "a port stands behind `:`");
        DSL_CHECK(jump.port >= 0 && jump.port <= kPortMax, "a port, or none");
        DSL_CHECK(jump.name.find_first_not_of(kNameLetters) == std::string::npos, "a name");
    }
}

// Matches row by row over the whole table, without the reader's one star to go back to.
bool matches_by_table(std::string_view text, std::string_view pattern) {
    std::vector<char> row(text.size() + 1, 0);
    row[0] = 1;
    for (const char p : pattern) {
        std::vector<char> next(text.size() + 1, 0);
        for (size_t i = 0; i <= text.size(); ++i) {
            const bool one = i > 0 && row[i - 1] != 0 && (p == '?' || p == text[i - 1]);
            const bool any = p == '*' && (row[i] != 0 || (i > 0 && next[i - 1] != 0));
            next[i] = p == '*' ? any : one;
        }
        row = std::move(next);
    }
    return row.back() != 0;
}

void try_pattern(std::string_view bytes) {
    const size_t cut = std::min(bytes.find('\n'), bytes.size());
    const std::string_view text = bytes.substr(0, cut);
    const std::string_view pattern = bytes.substr(std::min(cut + 1, bytes.size()));
    DSL_CHECK(matches_pattern(text, pattern) == matches_by_table(text, pattern),
              "the table says otherwise");
}

void try_words(std::string_view text) {
    const auto words = split_words(text, Comments::kEndTheLine);
    if (!words) return;
    std::string written;
    for (const std::string& word : *words) {
        written += " \"";
        for (const char c : word) {
            if (c == '"' || c == '\'' || c == '\\') written += '\\';
            written += c;
        }
        written += '"';
    }
    DSL_CHECK(split_words(written, Comments::kEndTheLine) == words, "read back");
}

void try_host_name(std::string_view text) {
    if (!is_host_name(text)) return;
    const bool bracketed = text.front() == '[' && text.back() == ']';
    if (bracketed) text = text.substr(1, text.size() - 2);
    DSL_CHECK(text.find_first_not_of(kNameLetters) == std::string_view::npos, "nothing else");
    DSL_CHECK(bracketed || text.find(':') == std::string_view::npos, "IPv6 stands in brackets");
}

void try_gpu_use(std::string_view text) {
    const size_t cut = std::min(text.find(';'), text.size());
    const std::string_view rest = text.substr(std::min(cut + 1, text.size()));
    GpuUse use = parse_gpu_use(text.substr(0, cut), rest);
    add_gpu_facts(use.gpus, rest, text);
    for (const Gpu& gpu : use.gpus) {
        DSL_CHECK(gpu.index >= 0 && gpu.memory_bytes >= -1 && gpu.used_bytes >= -1, "a GPU");
        DSL_CHECK(gpu.ecc_errors >= -1 && gpu.pcie_lanes >= -1 && gpu.nvlinks != 0, "its facts");
        (void)(link_text(gpu) + fault_of(gpu) + facts_of_gpu(use, text, 0));
    }
    for (const GpuHold& hold : use.holds) {
        DSL_CHECK(hold.pid > 0 && hold.bytes >= -1, "a process");
        DSL_CHECK(std::ranges::find(use.gpus, hold.gpu, &Gpu::index) != use.gpus.end(), "of a GPU");
    }
}

constexpr void (*kGrammars[])(std::string_view) = {try_processors, try_endpoint, try_proxy_jump,
                                                   try_pattern,    try_words,    try_host_name,
                                                   try_gpu_use};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    try {
        kGrammars[data[0] % std::size(kGrammars)](text);
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kUsage, "a bad option is a usage error");
        fuzz::check_shown(error.what());
    }
    return 0;
}
