// P14: no text in a hostfile, a filter, the environment or an option is ever executed. An error in
// it is reported with its place.
#include <fmt/core.h>

#include <filesystem>

#include "cluster/promise.h"

namespace dslaunch::test {
namespace {

// Returns texts that create a file named CANARY if a shell, ssh or printf() interprets them.
Words hostile_texts(const std::string& canary) {
    const std::string touch = "touch " + canary;
    const std::string plain = "touch${IFS}" + canary;
    Words texts = {"-oProxyCommand=" + plain,
                   "-oLocalCommand=" + plain,
                   "-F/dev/null",
                   "--",
                   "-",
                   "$(" + touch + ")",
                   "$(" + plain + ")",
                   "`" + touch + "`",
                   "`" + plain + "`",
                   "a;" + touch,
                   "a;" + plain + ";",
                   "a|" + plain,
                   "a&" + plain + "&",
                   "a&&" + plain,
                   "a\n" + touch + "\n",
                   "a>" + canary,
                   "a\r" + touch,
                   "'$(" + plain + ")'",
                   "\"$(" + plain + ")\"",
                   "a'" + plain + "'",
                   "%h%p%r%n",
                   "%n%n%n%n",
                   "%s%s%s%s",
                   "${" + canary + "}",
                   "{a,b}",
                   "~root",
                   "*",
                   "../../etc/passwd",
                   "\\x41\\",
                   "a\tb",
                   "xn--80ak6aa92e.com:22",
                   "\xd0\xb0pple",
                   "a\xff\xfe",
                   "\x1b]0;x\x07",
                   std::string(300, 'a'),
                   std::string(5000, '['),
                   "te[1-99999999999]",
                   "te[4-1]",
                   "te[1-",
                   "::1",
                   "[::1",
                   "a@b@c",
                   "@",
                   "a@",
                   "user;id@host",
                   "\xe2\x80\xae"
                   "moc",
                   "a=b",
                   "host slots=1 slots=2",
                   "#",
                   "eval " + touch};
    return texts;
}

// A place for a text: a line of a hostfile, or words of the command line. {0} stands for the text.
struct Field {
    const char* name;
    const char* hostfile;  // text of the second line; nullptr: a good hostfile
    Words words;
    bool may_be_fine;  // the text may be a legal value there
};

const Field kFields[] = {
    {"a host", "{0} slots=1\n", {}, false},
    {"a user", "{0}@h2 slots=1\n", {}, false},
    {"slots", "h2 slots={0}\n", {}, false},
    {"gpus", "h2 gpus={0}\n", {}, false},
    {"port", "h2 slots=1 port={0}\n", {}, false},
    {"addr", "h2 slots=1 addr={0}\n", {}, false},
    {"an unknown key", "h2 slots=1 {0}=1\n", {}, false},
    {"--include", nullptr, {"--include", "{0}"}, false},
    {"--exclude", nullptr, {"--exclude", "{0}"}, false},
    {"--include's slot", nullptr, {"--include", "h1:{0}"}, false},
    {"--master_addr", nullptr, {"--master_addr", "{0}"}, false},
    {"--launcher", nullptr, {"--launcher", "{0}"}, false},
    {"--ssh_port", nullptr, {"--ssh_port", "{0}"}, false},
    {"--rdzv_endpoint", nullptr, {"--rdzv_endpoint", "{0}"}, false},
    {"--rdzv_id", nullptr, {"--rdzv_id", "{0}"}, false},
    {"--env's name", nullptr, {"--env", "{0}=1"}, false},
    {"--env's value", nullptr, {"--env", "SOME={0}"}, true},
};

std::string filled(std::string text, const std::string& with) {
    for (size_t at = 0; (at = text.find("{0}", at)) != std::string::npos; at += with.size())
        text.replace(at, 3, with);
    return text;
}

struct HostileOutcome {
    int tried = 0;
    int refused = 0;
    int with_place = 0;
    int hostfiles = 0;
};

// Plans a job (--dry-run) with TEXT at FIELD, and counts the result in OUTCOME.
void try_text(const Field& field, const std::string& text, const TemporaryFolder& folder,
              HostileOutcome& outcome) {
    const std::string second = field.hostfile == nullptr ? "h2 slots=1\n" : field.hostfile;
    std::ofstream(folder.path() + "/hostfile", std::ios::binary) << "h1 slots=1\n"
                                                                 << filled(second, text);
    Words words = {kDslaunch, "--hostfile", folder.path() + "/hostfile", "--dry-run"};
    for (const std::string& word : field.words) words.push_back(filled(word, text));
    JobProcess job(folder, words + Words{"/bin/true"});
    const int code = job.wait();
    INFO(field.name << " `" << text << "`\n" << job.err());
    CHECK((code == 0 || code == 64));
    ++outcome.tried;
    outcome.refused += code == 64 ? 1 : 0;
    if (field.hostfile == nullptr || code == 0) return;
    ++outcome.hostfiles;
    // If a text contains a newline, the error may be in the line after it.
    const bool told = mentions(job.err(), "/hostfile:2:") || mentions(job.err(), "/hostfile:3:");
    CHECK(told);
    outcome.with_place += told ? 1 : 0;
}

}  // namespace

TEST_CASE(
    "P14: 850 hostile texts in 17 fields execute nothing, and a hostfile's are told with place") {
    const TemporaryFolder folder;
    const std::string canary = folder.path() + "/canary";
    HostileOutcome outcome;
    for (const Field& field : kFields) {
        for (const std::string& text : hostile_texts(canary)) {
            try_text(field, text, folder, outcome);
            if (std::filesystem::exists(canary)) FAIL(field.name << " executed `" << text << "`");
        }
    }
    std::printf(
        "P14 %d hostile texts: 0 executed, %d refused; of the %d that a hostfile refuses %d "
        "with line and column\n",
        outcome.tried, outcome.refused, outcome.hostfiles, outcome.with_place);
    CHECK(outcome.tried >= 500);
    CHECK(outcome.with_place == outcome.hostfiles);
}

TEST_CASE("P14: hostile values travel to the ranks as text, and nothing on the way executes them") {
    const TemporaryFolder folder;
    const std::string canary = folder.path() + "/canary";
    Words words = on_pretended_hosts(folder, "h[1-2] slots=1\n");
    int number = 0;
    for (const std::string& text : hostile_texts(canary))
        words.insert(words.end(), {"--env", fmt::format("H{}={}", number++, text)});
    words.insert(words.end(), {kStub, "environment", folder.path() + "/seen"});
    for (const std::string& text : hostile_texts(canary)) words.push_back(text);
    JobProcess job(folder, words);
    // stub_rank gets too many words. It reads them, and then fails with this code.
    CHECK(job.wait() == 126);
    CHECK_FALSE(std::filesystem::exists(canary));
}

}  // namespace dslaunch::test
