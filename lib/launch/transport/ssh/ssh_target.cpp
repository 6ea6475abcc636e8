#include "launch/transport/ssh/ssh_target.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "launch/hosts/hostfile.h"
#include "launch/transport/ssh/ssh_config.h"

namespace dslaunch::launch {
namespace {

constexpr const char* kUseOpenSsh = "give --launcher openssh";
constexpr int kDefaultPort = 22;

struct LocalUser {
    std::string name;
    std::string home;

    static LocalUser this_one() {
        const passwd* entry = ::getpwuid(::getuid());
        if (entry != nullptr) return {entry->pw_name, entry->pw_dir};
        const char* home = std::getenv("HOME");
        const char* name = std::getenv("USER");
        return {name == nullptr ? std::to_string(::getuid()) : name, home == nullptr ? "/" : home};
    }
};

class Resolver {
  public:
    Resolver(const HostAddress& host, const std::string& config_path)
        : host_(host), local_(LocalUser::this_one()) {
        SshConfigRequest request;
        request.name = host.name;
        request.config_path = config_path;
        request.home = local_.home;
        request.local_user = local_.name;
        if (!host.user.empty()) request.given.emplace_back("user", host.user);
        if (host.port != 0) request.given.emplace_back("port", std::to_string(host.port));
        if (!host.address.empty()) {
            // The key is looked up under the host's name, but the connection is made to its
            // address.
            request.given.emplace_back("hostname", host.address);
            request.given.emplace_back("hostkeyalias", host.name);
        }
        directives_ = read_ssh_config(request);
    }

    SshTarget resolve() {
        refuse_what_libssh_cannot();
        target_.name = host_.name;
        target_.user = text("user", local_.name);
        target_.port = static_cast<int>(number("port", kDefaultPort, 1, 65'535));
        target_.host_name = host_.name;
        const std::string name = expand("hostname", text("hostname", "%h"));
        target_.host_name = name;
        choose_key_name();
        choose_identities();
        choose_way();
        choose_limits();
        for (const char* keyword : {"ciphers", "macs", "kexalgorithms", "hostkeyalgorithms",
                                    "pubkeyacceptedalgorithms"}) {
            if (const SshDirective* d = find_directive(directives_, keyword)) {
                target_.algorithms.push_back({keyword, d->words.front(), d->where()});
            }
        }
        return std::move(target_);
    }

  private:
    void refuse_what_libssh_cannot() {
        for (const auto& [keyword, list] : directives_) {
            const SshDirective& first = list.front();
            const std::string value = first.words.front();
            const SshKeyword kind = classify_ssh_keyword(keyword);
            if (kind == SshKeyword::kRefused && !asks_for_nothing(keyword, lower(value))) {
                refuse(first, fmt::format("`{} {}` is not supported by the built-in ssh; {}",
                                          keyword, printable(value), kUseOpenSsh));
            }
            if (kind == SshKeyword::kOtherCredential && lower(value) == "yes" &&
                keyword.ends_with("authentication")) {
                target_.unused_credentials +=
                    fmt::format("{}{} ({})", target_.unused_credentials.empty() ? "" : ", ",
                                keyword, first.where());
            }
        }
    }

    [[noreturn]] static void refuse(const SshDirective& directive, const std::string& what) {
        fail(ExitCode::kUsage, "{}: {}", directive.where(), what);
    }

    std::string text(const std::string& keyword, const std::string& otherwise) const {
        const SshDirective* d = find_directive(directives_, keyword);
        return d == nullptr ? otherwise : d->words.front();
    }

    int64_t number(const std::string& keyword, int64_t otherwise, int64_t least,
                   int64_t most) const {
        const SshDirective* d = find_directive(directives_, keyword);
        if (d == nullptr) return otherwise;
        const auto value = parse_int(d->words.front());
        if (!value || *value < least || *value > most) {
            refuse(*d, fmt::format("`{} {}` is not a number from {} to {}", keyword,
                                   printable(d->words.front()), least, most));
        }
        return *value;
    }

    bool yes(const std::string& keyword) const {
        const std::string value = lower(text(keyword, "no"));
        return value == "yes" || value == "true";
    }

    // Expands percent tokens, `${NAME}` and a leading `~/` by the rules of ssh_config(5).
    std::string expand(const std::string& keyword, const std::string& value) const {
        const SshDirective* d = find_directive(directives_, keyword);
        std::string result;
        for (size_t i = 0; i < value.size(); ++i) {
            if (value[i] == '$' && value.compare(i, 2, "${") == 0) {
                const size_t end = value.find('}', i);
                const std::string name =
                    end == std::string::npos ? "" : value.substr(i + 2, end - i - 2);
                const char* content = name.empty() ? nullptr : std::getenv(name.c_str());
                if (content == nullptr && d != nullptr) {
                    refuse(*d, fmt::format("{}: `${{{}}}` is not set", keyword, printable(name)));
                }
                if (content != nullptr) result += content;
                i = end;
            } else if (value[i] == '%' && i + 1 < value.size()) {
                const auto token = token_text(value[++i]);
                if (!token && d != nullptr) {
                    refuse(*d, fmt::format(
                                   "{} with the token %{} is not supported by the built-in ssh; {}",
                                   keyword, printable(value.substr(i, 1)), kUseOpenSsh));
                }
                result += token.value_or("");
            } else {
                result += value[i];
            }
        }
        if (result.starts_with("~/")) result = local_.home + result.substr(1);
        return result;
    }

    std::optional<std::string> token_text(char token) const {
        std::array<char, 256> own_name{};
        ::gethostname(own_name.data(), own_name.size() - 1);
        const std::string machine = own_name.data();
        const std::pair<char, std::string> tokens[] = {{'%', "%"},
                                                       {'h', target_.host_name},
                                                       {'n', host_.name},
                                                       {'p', std::to_string(target_.port)},
                                                       {'r', target_.user},
                                                       {'u', local_.name},
                                                       {'d', local_.home},
                                                       {'i', std::to_string(::getuid())},
                                                       {'k', text("hostkeyalias", host_.name)},
                                                       {'l', machine},
                                                       {'L', machine.substr(0, machine.find('.'))}};
        for (const auto& [known, words] : tokens)
            if (known == token) return words;
        return std::nullopt;
    }

    std::vector<std::string> paths(const std::string& keyword,
                                   std::vector<std::string> otherwise) const {
        const auto found = directives_.find(keyword);
        std::vector<std::string> words;
        if (found != directives_.end()) {
            for (const SshDirective& d : found->second) {
                words.insert(words.end(), d.words.begin(), d.words.end());
            }
        }
        if (words.empty()) words = std::move(otherwise);
        std::vector<std::string> result;
        for (const std::string& word : words) {
            if (lower(word) != "none") result.push_back(expand(keyword, word));
        }
        return result;
    }

    void choose_key_name() {
        const SshDirective* alias = find_directive(directives_, "hostkeyalias");
        target_.key_name = lower(alias == nullptr ? target_.host_name : alias->words.front());
        if (alias == nullptr && target_.port != kDefaultPort) {
            target_.key_name = fmt::format("[{}]:{}", target_.key_name, target_.port);
        }
        target_.known_hosts_files =
            paths("userknownhostsfile", {"~/.ssh/known_hosts", "~/.ssh/known_hosts2"});
        for (std::string& path : paths("globalknownhostsfile",
                                       {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"})) {
            target_.known_hosts_files.push_back(std::move(path));
        }
    }

    void choose_identities() {
        target_.identities_only = yes("identitiesonly");
        target_.identity_files =
            paths("identityfile", {"~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519"});
        target_.certificate_files = paths("certificatefile", {});
        for (const std::string& file : target_.identity_files) {
            if (!file.starts_with("pkcs11:")) continue;
            refuse(*find_directive(directives_, "identityfile"),
                   fmt::format("`IdentityFile pkcs11:...` is not supported by the built-in ssh; {}",
                               kUseOpenSsh));
        }
        const SshDirective* agent = find_directive(directives_, "identityagent");
        if (agent == nullptr) return;
        const std::string& value = agent->words.front();
        if (lower(value) == "none") {
            target_.use_agent = false;
        } else if (value.starts_with('$') && !value.starts_with("${")) {
            const char* content = std::getenv(value.c_str() + 1);
            if (content == nullptr) {
                target_.use_agent = false;
            } else {
                target_.agent_socket = content;
            }
        } else if (value != "SSH_AUTH_SOCK") {
            target_.agent_socket = expand("identityagent", value);
        }
    }

    void choose_way() {
        if (const SshDirective* jump = find_directive(directives_, "proxyjump")) {
            const std::string list = expand("proxyjump", jump->words.front());
            if (lower(list) != "none") target_.jumps = parse_proxy_jump(list, jump->where());
        }
        const std::string command = text("proxycommand", "none");
        if (lower(command) != "none") target_.proxy_command = expand("proxycommand", command);
        target_.bind_address = text("bindaddress", "");
        const std::string family = lower(text("addressfamily", "any"));
        target_.address_family = family == "inet" ? AF_INET : family == "inet6" ? AF_INET6 : 0;
    }

    void choose_limits() {
        const std::string limit = lower(text("connecttimeout", "none"));
        if (limit != "none") {
            target_.connect_max = std::chrono::seconds(number("connecttimeout", 0, 1, 86'400));
        }
        target_.compression = yes("compression");
        target_.rsa_bits_min = static_cast<int>(number("requiredrsasize", 0, 1024, 16'384));
        const SshDirective* rekey = find_directive(directives_, "rekeylimit");
        if (rekey == nullptr) return;
        const auto scaled = [&](const std::string& word, std::string_view units,
                                std::initializer_list<uint64_t> factors) {
            if (word == "default" || word == "none") return uint64_t{0};
            const size_t unit = word.empty()
                                    ? std::string_view::npos
                                    : units.find(static_cast<char>(std::tolower(word.back())));
            const bool plain = unit == std::string_view::npos;
            const auto digits = parse_int(plain ? word : word.substr(0, word.size() - 1));
            if (!digits || *digits < 0 || *digits > (int64_t{1} << 31)) {
                refuse(*rekey,
                       fmt::format("RekeyLimit: `{}` is not a valid limit", printable(word)));
            }
            return static_cast<uint64_t>(*digits) * (plain ? 1 : *(factors.begin() + unit));
        };
        const auto& words = rekey->words;
        target_.rekey_bytes = scaled(words[0], "kmg", {1U << 10, 1U << 20, 1U << 30});
        if (words.size() < 2) return;
        const uint64_t seconds = scaled(words[1], "smhdw", {1, 60, 3600, 86'400, 604'800});
        if (seconds > UINT32_MAX) refuse(*rekey, "RekeyLimit: the time must be at most 136 years");
        target_.rekey_s = static_cast<uint32_t>(seconds);
    }

    const HostAddress& host_;
    LocalUser local_;
    SshDirectives directives_;
    SshTarget target_;
};

}  // namespace

std::vector<HostAddress> parse_proxy_jump(const std::string& text, const std::string& where) {
    std::vector<HostAddress> jumps;
    for (std::string entry : split(text, ',')) {
        if (entry.starts_with("ssh://")) entry.erase(0, 6);
        HostAddress jump;
        const size_t at = entry.rfind('@');
        if (at != std::string::npos) jump.user = entry.substr(0, at);
        std::string host = at == std::string::npos ? entry : entry.substr(at + 1);
        std::string port;
        const size_t bracket = host.find(']');
        if (host.starts_with('[') && bracket != std::string::npos) {
            port = host.substr(bracket + 1);
            host = host.substr(1, bracket - 1);
        } else if (const size_t colon = host.find(':'); colon != std::string::npos) {
            port = host.substr(colon);
            host.resize(colon);
        }
        std::optional<int64_t> number;
        if (port.empty()) number = 0;
        if (port.starts_with(':')) number = parse_int(port.substr(1));
        const bool is_name = is_host_name(host) || is_host_name(fmt::format("[{}]", host));
        if (!is_name || !number || *number < 0 || *number > 65'535) {
            fail(ExitCode::kUsage, "{}: ProxyJump: `{}` is not [user@]host[:port]", where,
                 printable(entry));
        }
        jump.name = host;
        jump.port = static_cast<int>(*number);
        jumps.push_back(std::move(jump));
    }
    return jumps;
}

SshTarget resolve_ssh_target(const HostAddress& host, const std::string& config_path) {
    return Resolver(host, config_path).resolve();
}

}  // namespace dslaunch::launch
