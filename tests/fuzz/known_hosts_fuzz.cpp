// libFuzzer entry: reads any bytes as a known_hosts file, and asks for its verdict about a key. The
// verdict follows the lines of the file: a line for the key makes it known, but a @revoked line
// anywhere in the file comes first. It never crashes or hangs.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/fd.h"
#include "launch/transport/ssh/known_hosts.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;
using Verdict = KnownHosts::Verdict;

constexpr const char* kName = "node1.example";
constexpr const char* kKeyBase64 =
    "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

ssh_key the_key() {
    static const std::unique_ptr<ssh_key_struct, void (*)(ssh_key)> key(
        [] {
            ssh_key raw = nullptr;
            DSL_CHECK(ssh_pki_import_pubkey_base64(kKeyBase64, SSH_KEYTYPE_ED25519, &raw) == SSH_OK,
                      "the fuzzer's key is one");
            return raw;
        }(),
        ssh_key_free);
    return key.get();
}

// Returns the known hosts in TEXT. KnownHosts reads files, so TEXT is written to a file in memory.
KnownHosts read(std::string_view text) {
    static const UniqueFd file(::memfd_create("known_hosts", MFD_CLOEXEC));
    static const std::string path = fmt::format("/proc/self/fd/{}", file.get());
    const auto length = static_cast<ssize_t>(text.size());
    DSL_CHECK(::ftruncate(file.get(), 0) == 0 &&
                  ::pwrite(file.get(), text.data(), text.size(), 0) == length,
              "a memory file takes {} bytes", length);
    return KnownHosts({path}, kName);
}

void check_place(const KnownHosts& hosts, Verdict verdict, std::string_view text) {
    if (verdict == Verdict::kUnknown) return;
    const std::string& where = hosts.where();
    const size_t colon = where.rfind(':');
    DSL_CHECK(colon != std::string::npos, "a verdict names its line");
    const int line = std::stoi(where.substr(colon + 1));
    DSL_CHECK(line >= 1 && line <= 1 + std::count(text.begin(), text.end(), '\n'), "line {}", line);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    const std::string text(reinterpret_cast<const char*>(data), size_bytes);
    const KnownHosts plain = read(text);
    const Verdict verdict = plain.judge(the_key());
    check_place(plain, verdict, text);
    DSL_CHECK((verdict == Verdict::kChanged || verdict == Verdict::kKnown) ==
                      !plain.algorithms().empty() ||
                  verdict == Verdict::kRevoked,
              "keys have algorithms");
    const std::string line = fmt::format("{} ssh-ed25519 {}\n", kName, kKeyBase64);
    const Verdict with_line = read(fmt::format("{}\n{}", text, line)).judge(the_key());
    DSL_CHECK(with_line == (verdict == Verdict::kRevoked ? Verdict::kRevoked : Verdict::kKnown),
              "a line for the key makes it known");
    DSL_CHECK(read(fmt::format("@revoked {}{}", line, text)).judge(the_key()) == Verdict::kRevoked,
              "a revoked key is revoked");
    return 0;
}
