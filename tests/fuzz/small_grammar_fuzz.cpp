// libFuzzer entry: the small grammars of options and files; the first byte selects one. They are
// lists of processors, addresses at which a launcher listens, ProxyJump, patterns of host names,
// words in quotes, host names, the output of nvidia-smi, names of control groups, SSH_CONNECTION,
// the kernel's answer about a socket, and lines with secrets. Each text is refused, or means the
// same as in an independent reading or after it is written and read again.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
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
#include "launch/machine/launcher_silence.h"
#include "launch/machine/machine_topology.h"
#include "launch/plan/secrets.h"
#include "launch/process/kill_group.h"
#include "launch/transport/join/join_endpoint.h"
#include "launch/transport/ssh/ssh_config.h"
#include "launch/transport/ssh/ssh_target.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;

constexpr int kProcessorMax = 65'535;
constexpr int kPortMax = 65'535;
// The letters of names, and of IPv6 addresses without their brackets.
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

// Matches row by row over the whole table. The tested reader instead stores only one star that it
// can return to.
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

void try_kill_group(std::string_view text) {
    if (const auto name = parse_kill_group(text)) {
        DSL_CHECK(!name->launch_id.empty() && name->attempt >= 0 && name->agent >= 0, "a group");
        DSL_CHECK(parse_kill_group(kill_group_name(*name)) == name, "read back");
    }
    if (text.empty()) return;
    const KillGroupName written{std::string(text), 3, 7};
    DSL_CHECK(parse_kill_group(kill_group_name(written)) == written, "an id may hold anything");
}

// Checks that the question to the kernel has the addresses that inet_ntop reads.
void try_ssh_connection(std::string_view text) {
    // A variable of the environment cannot contain a zero byte.
    if (text.find('\0') != std::string_view::npos) return;
    const auto request = diag_request(text);
    if (!request) return;
    const std::vector<std::string> words = split(trim(text), ' ');
    const inet_diag_sockid& id = request->body.id;
    DSL_CHECK(words.size() == 4, "four words");
    for (const auto& [word, address] :
         {std::pair(words[0], id.idiag_dst), {words[2], id.idiag_src}}) {
        char shown[INET6_ADDRSTRLEN] = "";
        DSL_CHECK(::inet_ntop(request->body.sdiag_family, address, shown, sizeof shown), "shown");
        unsigned char bytes[16] = {};
        const std::string plain = word.substr(0, word.find('%'));
        DSL_CHECK(::inet_pton(request->body.sdiag_family, plain.c_str(), bytes) == 1, "an address");
        unsigned char again[16] = {};
        DSL_CHECK(::inet_pton(request->body.sdiag_family, shown, again) == 1, "an address");
        DSL_CHECK(std::memcmp(bytes, again, sizeof bytes) == 0, "{} is {}", word, shown);
    }
    DSL_CHECK(parse_int(words[1]) == ntohs(id.idiag_dport) && id.idiag_dport != 0, "a port");
    DSL_CHECK(parse_int(words[3]) == ntohs(id.idiag_sport) && id.idiag_sport != 0, "a port");
}

template <typename Value>
Value value_at(std::string_view bytes, size_t at) {
    Value value{};
    std::memcpy(&value, bytes.data() + at, std::min(sizeof value, bytes.size() - at));
    return value;
}

// Returns the tcp_info in ANSWER, found by going through its attributes; empty if there is none.
std::string_view tcp_info_in(std::string_view answer) {
    const auto header = value_at<nlmsghdr>(answer, 0);
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || header.nlmsg_len < sizeof header) return {};
    if (header.nlmsg_len > answer.size()) return {};
    answer = answer.substr(0, header.nlmsg_len);
    for (size_t at = sizeof header + sizeof(inet_diag_msg); at + sizeof(rtattr) <= answer.size();) {
        const auto item = value_at<rtattr>(answer, at);
        if (item.rta_len < sizeof item || item.rta_len > answer.size() - at) return {};
        if (item.rta_type == INET_DIAG_INFO) return answer.substr(at, item.rta_len);
        at += (item.rta_len + size_t{3}) / 4 * 4;
    }
    return {};
}

// Reads TEXT as the kernel's answer. If its first byte is odd, the answer gets a valid header about
// a socket.
void try_diag_answer(std::string_view text) {
    std::string answer(text.substr(std::min<size_t>(1, text.size())));
    if (answer.size() < sizeof(nlmsghdr)) return;
    if (text[0] % 2 != 0) {
        nlmsghdr header{};
        header.nlmsg_len = static_cast<uint32_t>(answer.size());
        header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
        std::memcpy(answer.data(), &header, sizeof header);
    }
    // The memory ends at the last byte, so that a sanitizer sees a read after it.
    const auto memory = std::make_unique<char[]>(answer.size());
    std::memcpy(memory.get(), answer.data(), answer.size());
    const auto signs =
        signs_in_answer(reinterpret_cast<const nlmsghdr*>(memory.get()), answer.size());
    const std::string_view info = tcp_info_in(answer);
    DSL_CHECK(signs.has_value() == !info.empty(), "signs where there is a tcp_info");
    if (!signs) return;
    const auto expected = value_at<tcp_info>(info, sizeof(rtattr));
    DSL_CHECK(signs->since_acknowledgement.count() == expected.tcpi_last_ack_recv, "its time");
    DSL_CHECK(signs->unacknowledged == expected.tcpi_unacked, "its segments");
    DSL_CHECK(signs->probes == expected.tcpi_probes, "its probes");
}

// Checks that a secret is hidden because of its name, whatever text is before and after it.
void try_secrets(std::string_view text) {
    constexpr std::string_view kSecret = "Zq7hG2xW9v";
    if (text.find(kSecret) != std::string_view::npos) return;
    const size_t cut = std::min(text.find('|'), text.size());
    const std::string line = fmt::format("{} API_TOKEN={}{}", text.substr(0, cut), kSecret,
                                         text.substr(std::min(cut + 1, text.size())));
    const std::string shown = hide_secrets(line);
    DSL_CHECK(shown.find(kSecret) == std::string::npos, "a secret is shown");
    DSL_CHECK(std::ranges::count(shown, '\n') <= std::ranges::count(line, '\n'), "its lines");
}

constexpr void (*kGrammars[])(std::string_view) = {
    try_processors, try_endpoint,   try_proxy_jump,     try_pattern,     try_words,  try_host_name,
    try_gpu_use,    try_kill_group, try_ssh_connection, try_diag_answer, try_secrets};

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
