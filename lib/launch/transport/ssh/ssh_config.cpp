#include "launch/transport/ssh/ssh_config.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "base/text/words.h"
#include "launch/process/spawn.h"
#include "launch/transport/ssh_options_file.h"

namespace dslaunch::launch {
namespace {

constexpr int kIncludeDepthMax = 16;
constexpr size_t kLineBytesMax = 64U << 10;
constexpr std::chrono::seconds kExecMax{10};
constexpr const char* kSystemConfig = "/etc/ssh/ssh_config";

// Returns true if TEXT matches a pattern in LIST (separated by commas), unless TEXT also matches a
// pattern that begins with `!`.
bool matches_list(std::string_view text, std::string_view list) {
    bool found = false;
    for (const std::string& pattern : split(list, ',')) {
        const bool negated = pattern.starts_with('!');
        if (!matches_pattern(text, std::string_view(pattern).substr(negated ? 1 : 0))) continue;
        if (negated) return false;
        found = true;
    }
    return found;
}

bool takes_rest_of_line(std::string_view keyword) {
    return keyword == "proxycommand" || keyword == "remotecommand" || keyword == "localcommand" ||
           keyword == "knownhostscommand" || keyword == "match";
}

bool accumulates(std::string_view keyword) {
    return keyword == "identityfile" || keyword == "certificatefile";
}

struct Place {
    std::string file;
    int line = 0;
    std::string folder;  // folder for an `Include` without a slash
    int depth = 0;
};

class Reader {
  public:
    explicit Reader(const SshConfigRequest& request) : request_(request) {
        for (const auto& [keyword, value] : request.given) {
            values_[keyword].push_back({{value}, {}, 0});
        }
    }

    SshDirectives read() {
        read_all();
        if (wants_final_) {
            is_final_ = true;
            read_all();
        }
        return std::move(values_);
    }

  private:
    void read_all() {
        ignored_.clear();
        if (!request_.config_path.empty()) {
            if (request_.config_path == "none") return;
            return read_file(request_.config_path, request_.home + "/.ssh", 0, true,
                             SshConfigOrigin::kGiven);
        }
        read_file(request_.home + "/.ssh/config", request_.home + "/.ssh", 0, true,
                  SshConfigOrigin::kFound);
        read_file(kSystemConfig, "/etc/ssh", 0, true, SshConfigOrigin::kSystem);
    }

    void read_file(const std::string& path, const std::string& folder, int depth, bool active,
                   SshConfigOrigin origin) {
        if (depth > kIncludeDepthMax) {
            fail(ExitCode::kUsage, "{}: Include is nested deeper than {} files", printable(path),
                 kIncludeDepthMax);
        }
        const UniqueFd opened = open_ssh_config(path, origin);
        if (!opened.valid()) return;
        // Reads the file that was checked, even if PATH has become the name of a different file.
        std::ifstream file(fmt::format("/proc/self/fd/{}", opened.get()));
        Place place{path, 0, folder, depth};
        const bool outer = active;
        std::string line;
        while (std::getline(file, line)) {
            ++place.line;
            if (line.size() > kLineBytesMax) refuse(place, "a line is too long");
            read_line(line, place, outer, active);
        }
    }

    void read_line(std::string_view line, const Place& place, bool outer, bool& active) {
        line = trim(line);
        if (line.empty() || line.front() == '#') return;
        const size_t end = line.find_first_of(" \t=");
        const std::string keyword = lower(line.substr(0, end));
        std::string_view rest = end == std::string_view::npos ? "" : trim(line.substr(end));
        if (rest.starts_with('=')) rest = trim(rest.substr(1));
        const SshKeyword kind = classify_ssh_keyword(keyword);
        if (kind == SshKeyword::kUnknown) {
            if (matches_list(keyword, ignored_)) return;
            refuse(place, fmt::format("the built-in ssh does not support the keyword `{}`; give "
                                      "--launcher openssh if your ssh supports it",
                                      printable(keyword)));
        }
        const auto words = split_words(rest, Comments::kEndTheLine);
        if (!words) refuse(place, "a quote is not closed");
        if (words->empty()) refuse(place, fmt::format("`{}` has no value", keyword));
        if (keyword == "host") {
            active = outer && matches_host(*words);
        } else if (keyword == "match") {
            active = matches_conditions(*words, place, outer) && outer;
        } else if (keyword == "include") {
            for (const std::string& word : *words) include(word, place, active);
        } else if (active) {
            take(keyword, takes_rest_of_line(keyword) ? std::vector{std::string(rest)} : *words,
                 place);
        }
    }

    void take(const std::string& keyword, std::vector<std::string> words, const Place& place) {
        if (keyword == "ignoreunknown" && ignored_.empty()) ignored_ = lower(words.front());
        // ProxyCommand and ProxyJump exclude each other: the first one that is set also blocks the
        // other.
        const bool is_way = keyword == "proxycommand" || keyword == "proxyjump";
        if (is_way && (values_.contains("proxycommand") || values_.contains("proxyjump"))) return;
        const std::string& key = keyword == "pubkeyacceptedkeytypes" ? kAcceptedKey : keyword;
        auto& list = values_[key];
        if (!list.empty() && !accumulates(key)) return;
        for (const SshDirective& known : list) {
            if (known.words == words) return;
        }
        list.push_back({std::move(words), place.file, place.line});
    }

    bool matches_host(const std::vector<std::string>& patterns) const {
        bool found = false;
        for (const std::string& pattern : patterns) {
            const bool negated = pattern.starts_with('!');
            const auto bare = std::string_view(pattern).substr(negated ? 1 : 0);
            if (!matches_pattern(request_.name, bare)) continue;
            if (negated) return false;
            found = true;
        }
        return found;
    }

    bool matches_conditions(const std::vector<std::string>& words, const Place& place, bool outer) {
        bool result = true;
        for (size_t i = 0; i < words.size(); ++i) {
            const size_t equals = words[i].find('=');
            std::string name = lower(words[i].substr(0, equals));
            const bool negated = name.starts_with('!');
            if (negated) name.erase(0, 1);
            if (name == "all") {
                result = result && !negated;
                continue;
            }
            if (name == "final" || name == "canonical") {
                wants_final_ = wants_final_ || name == "final";
                result = result && is_final_ != negated;
                continue;
            }
            const bool inside = equals != std::string::npos;
            if (!inside && ++i == words.size()) {
                refuse(place, fmt::format("Match {} has no value", printable(name)));
            }
            const std::string value = inside ? words[i].substr(equals + 1) : words[i];
            // A command runs only if all conditions before it were true, as in ssh.
            const bool holds = matches_condition(name, value, place, result && outer);
            result = result && holds != negated;
        }
        return result;
    }

    bool matches_condition(const std::string& name, const std::string& value, const Place& place,
                           bool may_run) {
        if (name == "host") return matches_list(host_name(), lower(value));
        if (name == "originalhost") return matches_list(request_.name, lower(value));
        if (name == "user") return matches_list(first("user", request_.local_user), value);
        if (name == "localuser") return matches_list(request_.local_user, value);
        if (name == "tagged") return matches_list(first("tag", ""), value);
        if (name == "exec") return may_run && succeeds(value, place);
        refuse(
            place,
            fmt::format("`Match {}` is not supported by the built-in ssh; give --launcher openssh",
                        printable(name)));
    }

    std::string first(const std::string& keyword, const std::string& otherwise) const {
        const SshDirective* directive = find_directive(values_, keyword);
        return directive == nullptr ? otherwise : directive->words.front();
    }

    std::string host_name() const {
        std::string name = first("hostname", request_.name);
        for (size_t at = 0; (at = name.find('%', at)) != std::string::npos;) {
            const bool is_host = name.compare(at, 2, "%h") == 0;
            const std::string text = is_host ? request_.name : "%";
            name.replace(at, 2, text);
            at += text.size();
        }
        return name;
    }

    // Runs the user's own command in the user's shell, with %h %n %p %r %u %L as in ssh; returns
    // true if it succeeds.
    bool succeeds(const std::string& command, const Place& place) {
        using Token = std::pair<char, std::string>;
        const std::vector<Token> tokens = {{'%', "%"},
                                           {'h', host_name()},
                                           {'n', request_.name},
                                           {'p', first("port", "22")},
                                           {'r', first("user", request_.local_user)},
                                           {'u', request_.local_user},
                                           {'d', request_.home}};
        std::string text;
        for (size_t i = 0; i < command.size(); ++i) {
            if (command[i] != '%' || i + 1 == command.size()) {
                text += command[i];
                continue;
            }
            const auto token = std::ranges::find(tokens, command[++i], &Token::first);
            if (token == tokens.end())
                refuse(place, fmt::format("Match exec with %{} is not supported by the built-in "
                                          "ssh; give --launcher openssh",
                                          printable(command.substr(i, 1))));
            text += token->second;
        }
        const char* shell = std::getenv("SHELL");
        SpawnRequest request;
        request.command = {shell == nullptr || *shell == '\0' ? "/bin/sh" : shell, "-c", text};
        request.new_session = true;
        const SpawnResult child = spawn(request);
        if (child.pid < 0) refuse(place, "Match exec: " + child.error);
        const auto code = wait_or_kill(child.pid, kExecMax, true);
        if (code) return *code == 0;
        refuse(place, fmt::format("the command of Match exec has not ended within {} s",
                                  kExecMax.count()));
    }

    void include(const std::string& word, const Place& place, bool active) {
        std::string pattern = word;
        if (pattern.starts_with("~/")) {
            pattern = request_.home + pattern.substr(1);
        } else if (!pattern.starts_with('/')) {
            pattern = place.folder + "/" + pattern;
        }
        glob_t found{};
        if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
            std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
            ::globfree(&found);
            for (const std::string& path : paths) {
                read_file(path, place.folder, place.depth + 1, active, SshConfigOrigin::kFound);
            }
        }
    }

    [[noreturn]] static void refuse(const Place& place, const std::string& what) {
        fail(ExitCode::kUsage, "{}:{}: {}", printable(place.file), place.line, what);
    }

    static inline const std::string kAcceptedKey = "pubkeyacceptedalgorithms";
    const SshConfigRequest& request_;
    SshDirectives values_;
    std::string ignored_;  // patterns of unknown keywords to pass over
    bool wants_final_ = false;
    bool is_final_ = false;
};

struct KeywordRow {
    SshKeyword kind;
    std::string_view keywords;  // each between blanks
};
constexpr KeywordRow kKeywords[] = {
    {SshKeyword::kUsed,
     " addressfamily bindaddress certificatefile ciphers compression connecttimeout "
     "globalknownhostsfile host hostkeyalgorithms hostkeyalias hostname identitiesonly "
     "identityagent identityfile ignoreunknown include kexalgorithms macs match port "
     "proxycommand proxyjump pubkeyacceptedalgorithms pubkeyacceptedkeytypes rekeylimit tag user "
     "userknownhostsfile requiredrsasize "},
    // Directives about questions, display and logs: the user is never asked, and we print our own
    // errors.
    {SshKeyword::kIgnored,
     " addkeystoagent batchmode escapechar enableescapecommandline fingerprinthash loglevel "
     "logverbose numberofpasswordprompts kbdinteractiveauthentication kbdinteractivedevices "
     "challengeresponseauthentication passwordauthentication syslogfacility visualhostkey "
     "obscurekeystroketiming skeyauthentication tisauthentication versionaddendum warnweakcrypto "},
    // Host keys are always checked, against files to which we never write.
    {SshKeyword::kIgnored,
     " checkhostip hashknownhosts nohostauthenticationforlocalhost stricthostkeychecking "
     "updatehostkeys casignaturealgorithms verifyhostkeydns "},
    // Directives about shared connections, sessions and forwarding. They have no effect here: each
    // host has one connection, which runs one command.
    {SshKeyword::kIgnored,
     " controlmaster controlpath controlpersist forkafterauthentication localcommand "
     "permitlocalcommand remotecommand requesttty sendenv setenv sessiontype stdinnull "
     "forwardagent forwardx11 forwardx11timeout forwardx11trusted xauthlocation "
     "clearallforwardings dynamicforward exitonforwardfailure gatewayports localforward "
     "permitremoteopen remoteforward streamlocalbindmask streamlocalbindunlink tunnel "
     "tunneldevice channeltimeout "},
    // Launcher and agent detect each other's silence themselves.
    {SshKeyword::kIgnored,
     " serveralivecountmax serveraliveinterval tcpkeepalive keepalive ipqos connectionattempts "},
    // Directives that have an effect only with `canonicalizehostname` (which is refused), or that
    // ssh no longer uses at all.
    {SshKeyword::kIgnored,
     " canonicaldomains canonicalizefallbacklocal canonicalizemaxdots "
     "canonicalizepermittedcnames cipher protocol useprivilegedport useroaming usersh "
     "fallbacktorsh globalknownhostsfile2 userknownhostsfile2 debianbanner "},
    {SshKeyword::kOtherCredential,
     " gssapiauthentication gssapiclientidentity gssapidelegatecredentials gssapikexalgorithms "
     "gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns "
     "enablesshkeysign hostbasedauthentication hostbasedacceptedalgorithms hostbasedkeytypes "
     "rhostsrsaauthentication rsaauthentication dsaauthentication afstokenpassing "
     "kerberosauthentication securitykeyprovider "},
    {SshKeyword::kRefused,
     " bindinterface canonicalizehostname knownhostscommand pkcs11provider smartcarddevice "
     "preferredauthentications proxyusefdpass pubkeyauthentication revokedhostkeys "
     "refuseconnection "},
};

}  // namespace

std::string SshDirective::where() const {
    return file.empty() ? "the hostfile" : fmt::format("{}:{}", printable(file), line);
}

bool matches_pattern(std::string_view text, std::string_view pattern) {
    size_t t = 0;
    size_t p = 0;
    size_t star = std::string_view::npos;
    size_t resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            ++p;
            ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

const SshDirective* find_directive(const SshDirectives& directives, const std::string& keyword) {
    const auto found = directives.find(keyword);
    return found == directives.end() || found->second.empty() ? nullptr : &found->second.front();
}

SshDirectives read_ssh_config(const SshConfigRequest& request) {
    return Reader(request).read();
}

SshKeyword classify_ssh_keyword(std::string_view keyword) {
    const std::string word = fmt::format(" {} ", keyword);
    for (const KeywordRow& row : kKeywords)
        if (row.keywords.find(word) != std::string_view::npos) return row.kind;
    return SshKeyword::kUnknown;
}

bool asks_for_nothing(std::string_view keyword, std::string_view value) {
    if (keyword == "pubkeyauthentication") return value != "no" && value != "false";
    if (keyword == "preferredauthentications") {
        return value.find("publickey") != std::string_view::npos;
    }
    if (keyword == "refuseconnection") return false;
    return value == "no" || value == "none" || value == "false";
}

}  // namespace dslaunch::launch
