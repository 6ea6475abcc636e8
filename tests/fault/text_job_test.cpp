// generate and serve when a rank dies or stands still, when they are asked to end, and when a disk
// is full. The job ends in time with the right code and names the culprit. No client mistakes half
// an answer for a whole one.
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "fault/text_job.h"
#include "support/catch.h"
#include "support/job_end.h"
#include "support/skip.h"
#include "support/small_disk.h"

namespace dslaunch::test {

using namespace launch;
namespace {

constexpr const char* kTextJobTimeoutS = "5";

const std::vector<std::string> kWriteOnRanks = {
    "generate", "--num_gpus",    "2", "--prompt-ids", "1,2,3",         "--tokens",
    "199000",   "--temperature", "0", "--timeout",    kTextJobTimeoutS};
const std::vector<std::string> kServeOnRanks = {"serve",     "--num_gpus",    "2", "--port", "0",
                                                "--timeout", kTextJobTimeoutS};

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

Json endless_request(bool stream) {
    return {{"prompt", {1, 2, 3}}, {"max_tokens", 199'000}, {"temperature", 0}, {"stream", stream}};
}

struct Blow {
    int signal = 0;
    size_t rank = 0;
    int code = 0;
    std::string names;  // the report's words about the culprit
};

std::vector<Blow> blows() {
    return {{SIGKILL, 0, 68, "rank 0"},
            {SIGKILL, 1, 68, "rank 1"},
            {SIGSTOP, 0, 69, "rank 0"},
            {SIGSTOP, 1, 69, "rank 1"}};
}

// Applies BLOW to a job, and checks how the job ends.
void check_end(TextJob& job, const Blow& blow) {
    const auto all = descendants(job.process().pid());
    const auto ranks = job.ranks();
    REQUIRE(ranks[blow.rank].start_time != 0);
    REQUIRE(signal_process(ranks[blow.rank], blow.signal));
    const int code = job.process().wait();
    INFO(job.err());
    CHECK(code == blow.code);
    CHECK(job.err().find(blow.names) != std::string::npos);
    check_gone(all, blow.signal == SIGKILL ? "rank killed" : "rank stopped");
}

// Waits until the server at PORT is computing COUNT texts.
void await_running(int port, int count) {
    const std::string wanted = fmt::format("requests_running {}\n", count);
    for (;;) {
        WireClient client(port);
        client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        if (client.read_all().find(wanted) != std::string::npos) return;
        ::usleep(10'000);
    }
}

void check_port_is_free(int port) {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

}  // namespace

TEST_CASE("a rank that dies or stands still ends generate, and is named") {
    adopt_orphans();
    for (const Blow& blow : blows()) {
        INFO("signal " << blow.signal << " to rank " << blow.rank);
        TextJob job(kWriteOnRanks);
        job.await_text();
        check_end(job, blow);
        // The text is streamed, so only a part was written. The whole text has an id and a blank
        // for each of 199000 tokens.
        CHECK(job.process().out().size() < 199000);
    }
}

TEST_CASE("a rank that dies or stands still ends serve, and no client gets half an answer") {
    adopt_orphans();
    for (const Blow& blow : blows()) {
        INFO("signal " << blow.signal << " to rank " << blow.rank);
        TextJob job(kServeOnRanks);
        const int port = job.port();
        WireClient streamed(port), whole(port), idle(port);
        streamed.post("/v1/completions", endless_request(true));
        REQUIRE(streamed.read_until("data: {"));
        whole.post("/v1/completions", endless_request(false));
        check_end(job, blow);
        const std::string events = streamed.read_all();
        CHECK(events.find("\"finish_reason\": \"") == std::string::npos);
        // The stream may report an error before it ends.
        CHECK((!is_whole(events) || events.find("data: {\"error\"") != std::string::npos));
        const std::string reply = whole.read_all();
        CHECK((reply.empty() || reply.find("HTTP/1.1 503") == 0));
        CHECK(idle.read_all().empty());
        check_port_is_free(port);
    }
}

TEST_CASE("a rank that stands still while nobody asks for anything ends serve too") {
    adopt_orphans();
    TextJob job(kServeOnRanks);
    WireClient client(job.port());
    client.post("/v1/completions", {{"prompt", {1, 2, 3}}, {"max_tokens", 1}});
    REQUIRE(client.read_all().starts_with("HTTP/1.1 200"));
    check_end(job, {SIGSTOP, 1, 69, "rank 1"});
}

TEST_CASE("a served job that is asked to end lets texts end, takes no more, and ends with 0") {
    adopt_orphans();
    for (const int signal : {SIGINT, SIGTERM}) {
        TextJob job(with(kServeOnRanks, {"--grace", "600"}));
        const int port = job.port();
        WireClient client(port);
        Json request = endless_request(true);
        request["max_tokens"] = 2000;
        client.post("/v1/completions", request);
        REQUIRE(client.read_until("data: {"));
        const auto all = descendants(job.process().pid());
        job.process().signal(signal);
        const std::string events = client.read_all();
        const int code = job.process().wait();
        INFO(job.err());
        CHECK(code == 0);
        CHECK(is_whole(events));
        CHECK(events.find("\"finish_reason\": \"length\"") != std::string::npos);
        CHECK(job.err().find("the ranks have 605 s to end") != std::string::npos);
        CHECK(job.err().find("the server has ended as requested") != std::string::npos);
        check_gone(all, "served job asked to end");
        check_port_is_free(port);
    }
}

TEST_CASE("texts that go on for longer than the grace time are ended with an error") {
    adopt_orphans();
    TextJob job(with(kServeOnRanks, {"--grace", "0.2"}));
    const int port = job.port();
    WireClient streamed(port), whole(port);
    streamed.post("/v1/completions", endless_request(true));
    whole.post("/v1/completions", endless_request(false));
    REQUIRE(streamed.read_until("data: {"));
    await_running(port, 2);
    job.process().signal(SIGTERM);
    const int code = job.process().wait();
    INFO(job.err());
    CHECK(code == 0);
    CHECK(streamed.read_all().find("the server ends") != std::string::npos);
    CHECK(whole.read_all().find("HTTP/1.1 503") == 0);
}

TEST_CASE("a server alone ends on a signal with 0, at once on a second one") {
    adopt_orphans();
    TextJob job({"serve", "--port", "0", "--grace", "600"});
    const int port = job.port();
    WireClient client(port);
    client.post("/v1/completions", endless_request(true));
    REQUIRE(client.read_until("data: {"));
    job.process().signal(SIGTERM);
    job.await("asked to end");
    CHECK(wait_until([&] { return !WireClient(port).is_connected(); }));
    job.process().signal(SIGINT);
    CHECK(job.process().wait() == 0);
    CHECK(client.read_all().find("the server ends") != std::string::npos);
    check_port_is_free(port);
}

TEST_CASE("tools that the chat template does not use are refused with the reason") {
    adopt_orphans();
    TextJob job({"serve", "--port", "0"},
                "echo '{{ messages[0].content }}' > $3/chat_template.jinja");
    const int port = job.port();
    const auto reply = [&](const Json& tools) {
        WireClient client(port);
        client.post("/v1/chat/completions",
                    {{"messages", Json::array({{{"role", "user"}, {"content", "a"}}})},
                     {"tools", tools},
                     {"max_tokens", 1}});
        return client.read_all();
    };
    const std::string refused = reply(Json::array({{{"type", "function"}}}));
    CHECK(refused.find("HTTP/1.1 400") == 0);
    CHECK(refused.find("the template does not use `tools`") != std::string::npos);
    CHECK(reply(Json::array()).find("the template does not use") == std::string::npos);
}

TEST_CASE("a signal at any moment of its start ends a server") {
    adopt_orphans();
    for (const int wait_ms : {0, 5, 10, 20, 40, 80, 160}) {
        TextJob job({"serve", "--port", "0"});
        REQUIRE(wait_until([&] {
            return process_file(job.process().pid(), "cmdline").find("--port") != std::string::npos;
        }));
        std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        job.process().signal(SIGTERM);
        const int code = job.process().wait();
        INFO("after " << wait_ms << " ms\n" << job.err());
        // If dslaunch does not handle the signal yet, the signal ends it, as it ends any program.
        CHECK((code == 0 || code == 128 + SIGTERM));
    }
}

TEST_CASE("two signals end a server though it does what nothing breaks off") {
    adopt_orphans();
    for (const std::string grace : {"600", "0"}) {
        TextJob job({"serve", "--port", "0", "--grace", grace});
        const int port = job.port();
        WireClient client(port), health(port);
        client.post("/v1/chat/completions", {{"messages", {{{"role", "u"}, {"content", "a"}}}}});
        health.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        REQUIRE(health.read_all().starts_with("HTTP/1.1 200"));
        job.process().signal(SIGTERM);
        job.await("asked to end");
        // Without a grace time, one signal is enough.
        if (grace != "0") job.process().signal(SIGINT);
        CHECK(job.process().wait() == 0);
        // The job did not wait for this text.
        CHECK(client.read_all().empty());
    }
}

TEST_CASE("a server with small stacks answers whatever it is asked") {
    adopt_orphans();
    TextJob job({"serve", "--port", "0"}, "ulimit -s 128");
    const int port = job.port();
    WireClient ranges(port), chat(port);
    std::string many = "Range: bytes=0-0";
    for (int i = 0; i < 2'000; ++i) many += ",0-0";
    ranges.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + many +
                "\r\n\r\n");
    CHECK(ranges.read_all().starts_with("HTTP/1.1 200"));
    chat.post("/v1/chat/completions", {{"messages", {{{"role", "u"}, {"content", "a"}}}}});
    CHECK(chat.read_all().find("too many steps") != std::string::npos);
    WireClient text(port);
    text.post("/v1/completions", {{"prompt", {1, 2, 3}}, {"max_tokens", 3}});
    CHECK(text.read_all().starts_with("HTTP/1.1 200"));
    job.process().signal(SIGTERM);
    CHECK(job.process().wait() == 0);
}

TEST_CASE("a server under a limit of memory refuses what it has no room for, and lives") {
    adopt_orphans();
    TextJob job({"serve", "--port", "0", "--context", "64", "--threads", "1"}, "ulimit -v 1500000");
    const int port = job.port();
    const auto completion = [&](const std::string& prompt) {
        return "{\"max_tokens\": 1, \"prompt\": " + prompt + "}";
    };
    std::string lists = "[[]", messages = R"([{"role":"u","content":""})";
    for (int i = 0; i < 4'000'000; ++i) lists += ",[]";
    for (int i = 0; i < 500'000; ++i) messages += R"(,{"role":"u","content":""})";
    const std::pair<const char*, std::string> bodies[] = {
        {"/v1/completions", completion(lists + "]")},
        {"/v1/completions", completion("\"" + std::string(15'000'000, 'a') + "\"")},
        {"/v1/chat/completions", "{\"messages\": " + messages + "]}"},
    };
    for (const auto& [path, body] : bodies) {
        std::vector<std::unique_ptr<WireClient>> clients;
        for (int i = 0; i < 4; ++i) {
            clients.push_back(std::make_unique<WireClient>(port));
            clients.back()->send(
                fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
                            path, body.size()));
        }
        for (const auto& client : clients) client->send_what_is_taken(body);
        for (const auto& client : clients) {
            const std::string answer = client->read_all();
            INFO(path << " " << body.substr(0, 40) << "\n" << answer.substr(0, 300));
            CHECK((answer.starts_with("HTTP/1.1 503") || answer.starts_with("HTTP/1.1 400")));
        }
    }
    WireClient text(port);
    text.post("/v1/completions", {{"prompt", {1, 2, 3}}, {"max_tokens", 3}});
    CHECK(text.read_all().starts_with("HTTP/1.1 200"));
    job.process().signal(SIGTERM);
    CHECK(job.process().wait() == 0);
}

TEST_CASE("a key that others may read, and an address that others reach without one, are refused") {
    const TemporaryFolder folder;
    const std::string model = endless_model(folder), key = folder.path() + "/key";
    write_file(key, "secret%20\nmore\n");
    const auto run = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words = {kDslaunch, "serve", model, "--port", "0"};
        words.insert(words.end(), more.begin(), more.end());
        JobProcess process(folder, words);
        const int code = process.wait();
        return std::pair(code, process.err());
    };
    for (const mode_t mode : {0644, 0640, 0604, 0622}) {
        REQUIRE(::chmod(key.c_str(), mode) == 0);
        const auto [code, err] = run({"--api-key-file", key});
        INFO(err);
        CHECK(code == 66);
        CHECK(err.find("chmod 600") != std::string::npos);
    }
    for (const std::string content : {"", "\n", "two words\n", "k\xc3\xa4se\n"}) {
        write_file(key, content);
        REQUIRE(::chmod(key.c_str(), 0600) == 0);
        CHECK(run({"--api-key-file", key}).first == 66);
    }
    CHECK(run({"--api-key-file", folder.path() + "/none"}).first == 66);
    const auto [code, err] = run({"--host", "0.0.0.0"});
    INFO(err);
    CHECK(code == 64);
    CHECK(err.find("--api-key-file") != std::string::npos);
    CHECK_THAT(run({"--host", "localhost:8123"}).second,
               Catch::Contains("the port needs its own option: --host localhost --port 8123"));
}

TEST_CASE("chats that have their answer already are named, for what is written comes after it") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/model";
    std::filesystem::copy(fixture_path("huggingface/qwen2"), model);
    write_file(model + "/tokenizer.json",
               R"({"model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},)"
               R"( "pre_tokenizer": {"type": "Whitespace"}})");
    write_file(model + "/chat_template.jinja",
               "{% for message in messages %}{{ message.content }}{% endfor %}");
    const std::string question = R"({"role": "user", "content": "q"})";
    const std::string answer = R"({"role": "assistant", "content": "a"})";
    write_file(folder.path() + "/chats.jsonl",
               fmt::format("{{\"messages\": [{0}]}}\n{{\"messages\": [{0}, {1}]}}\n"
                           "{{\"messages\": [{0}, {1}], \"continue_final_message\": true}}\n",
                           question, answer));
    JobProcess process(folder, {kDslaunch, "generate", model, "--file",
                                folder.path() + "/chats.jsonl", "--tokens", "2", "--as", "ids"});
    CHECK(process.wait() == 0);
    INFO(process.err());
    CHECK(process.err().find("1 of 3 lines end with an assistant's answer") != std::string::npos);
}

TEST_CASE("Ctrl-C ends generate on ranks at once: there is nothing to save") {
    adopt_orphans();
    TextJob job(kWriteOnRanks);
    job.await("opened in");
    const auto all = descendants(job.process().pid());
    job.process().signal(SIGINT);
    CHECK(job.process().wait() == 76);
    CHECK(job.err().find(" s to ") == std::string::npos);
    check_gone(all, "generate interrupted");
}

TEST_CASE("a text that finds no room on its disk is an error, on one rank and on two") {
    const TemporaryFolder folder;
    const std::string disk = folder.path() + "/disk";
    if (!mount_small_disk(disk, "size=16k"))
        return report_skipped("generate on a full disk", "mounting a tmpfs needs root");
    const std::string model = endless_model(folder);
    std::string prompts;
    for (int i = 0; i < 200; ++i) prompts += "{\"prompt_ids\": [1, 2, 3]}\n";
    write_file(folder.path() + "/prompts.jsonl", prompts);
    const std::string generate =
        fmt::format("exec {} generate {} --file {}/prompts.jsonl --tokens 40 --context 64 ",
                    kDslaunch, model, folder.path());
    for (const char* ranks : {"", "--num_gpus 2 "}) {
        JobProcess process(folder, {"sh", "-c", generate + ranks + "> " + disk + "/text"});
        const int code = process.wait();
        INFO(process.err());
        CHECK(code == 72);
        CHECK(process.err().find("No space left on device") != std::string::npos);
    }
    // With enough room, the same command succeeds.
    JobProcess process(folder, {"sh", "-c", generate + "> " + folder.path() + "/text"});
    CHECK(process.wait() == 0);
    CHECK(::umount(disk.c_str()) == 0);
}

TEST_CASE("rows of text that find no room leave no file, and say so") {
    const TemporaryFolder folder;
    const std::string disk = folder.path() + "/disk";
    if (!mount_small_disk(disk, "size=64k"))
        return report_skipped("data prepare on a full disk", "mounting a tmpfs needs root");
    std::string lines;
    for (int i = 0; i < 4000; ++i) lines += "{\"text\": \"in the beginning was the word\"}\n";
    write_file(folder.path() + "/lines.jsonl", lines);
    std::filesystem::create_directory(folder.path() + "/words");
    write_file(folder.path() + "/words/tokenizer.json",
               R"({"version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "model":
                   {"type": "WordLevel", "vocab": {"the": 0, "?": 1}, "unk_token": "?"}})");
    const auto prepare = [&](const std::string& out) {
        return std::vector<std::string>{kDslaunch,   "data",
                                        "prepare",   folder.path() + "/lines.jsonl",
                                        "--model",   folder.path() + "/words",
                                        "--context", "16",
                                        "-o",        out};
    };
    JobProcess process(folder, prepare(disk + "/rows.safetensors"));
    const int code = process.wait();
    INFO(process.err());
    CHECK(code == 72);
    CHECK(process.err().find("No space left on device") != std::string::npos);
    CHECK(std::filesystem::is_empty(disk));
    JobProcess roomy(folder, prepare(folder.path() + "/rows.safetensors"));
    const int roomy_code = roomy.wait();
    INFO(roomy.err());
    CHECK(roomy_code == 0);
    CHECK(::umount(disk.c_str()) == 0);
}

namespace {

ProgramEnd run_generate(const TemporaryFolder& folder, const std::vector<std::string>& words,
                        const std::vector<std::string>& variables = {}) {
    std::vector<std::string> command = with({"env", "-u", "OMP_NUM_THREADS"}, variables);
    command = with(command, {kDslaunch, "generate"});
    return run_program(folder, with(command, words));
}

}  // namespace

TEST_CASE("a model without a tokenizer says that ids are its texts, whatever text is given") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/gpt.pt";
    JobProcess made(folder, {kDslaunch, "model", "new", "gpt", "--vocab", "512", "--width", "16",
                             "--heads", "2", "--layers", "1", "--context", "16", "-o", model});
    REQUIRE(made.wait() == 0);
    const std::vector<std::vector<std::string>> texts = {{}, {"--prompt", "hi"}, {"--chat", "hi"}};
    for (const std::vector<std::string>& text : texts) {
        const ProgramEnd said = run_generate(folder, with({model}, text));
        INFO(said.err);
        CHECK(said.code == 66);
        CHECK_THAT(said.err, Catch::Contains("gpt.pt has 512 tokens and no tokenizer, so it "
                                             "accepts only token ids: give --prompt-ids 5,17,2") &&
                                 !Catch::Contains("there is no prompt"));
    }
    const auto made_of = [&](const std::string& ids) {
        return run_generate(folder,
                            {model, "--tokens", "4", "--prompt-ids", ids, "--threads", "1"});
    };
    const ProgramEnd said = made_of("104,105");
    CHECK(said.code == 0);
    for (const char* ids : {"104 105", "[104, 105]", " 104,\n105 "}) {
        INFO(ids);
        CHECK(made_of(ids).out == said.out);
    }
    // The printed text can be used as a prompt.
    CHECK(made_of(said.out).code == 0);
    CHECK_THAT(made_of("104 x5").err, Catch::Contains("`x5` is not a token id"));
    CHECK(made_of("104 x5").code == 64);
    write_file(folder.path() + "/p.txt", "Hello");
    const ProgramEnd from_file =
        run_generate(folder, {model, "--prompt", "@" + folder.path() + "/p.txt"});
    CHECK(from_file.code == 64);
    CHECK_THAT(from_file.err, Catch::Contains("--prompt \"$(cat " + folder.path() + "/p.txt)\""));
    CHECK_THAT(run_generate(folder, {model, "--prompt-ids", "1", "--stop", "\\n"}).err,
               Catch::Contains("--stop: \\n is read as a backslash and an n"));
    CHECK_THAT(run_generate(folder, {model, "--prompt-ids", "1", "--stop", "caf\xe9"}).err,
               Catch::Contains("--stop: byte 4 is not valid UTF-8"));
    CHECK(made_of(" ").code == 64);
}

TEST_CASE("a file of prompts that has none is refused at once, and a bad line is one line") {
    const TemporaryFolder folder;
    const std::string model = endless_model(folder), file = folder.path() + "/prompts";
    struct Row {
        std::string content, says;
    };
    const Row rows[] = {
        {"In the beginning\nGod created\n",
         "its first line is not a JSON object, but each line must be one: {\"prompt\": text}, "},
        {"In the beginning\n",
         "to continue the text, run: dslaunch generate " + model + " < " + file},
        {"[{\"prompt\": \"a\"}]\n",
         "convert it to lines with: jq -c '.[]' " + file + " > lines.jsonl"},
        {"[\n {\"prompt\": \"a\"}\n]\n",
         "JSON in another form; convert it to lines with: jq -c '.[]' " + file},
        {"{\n \"prompt\": \"a\"\n}\n",
         "JSON in another form; convert it to lines with: jq -c '.' " + file},
        {"\n42\n", "its first line is not a JSON object"},
        {"\x1f\x8b\x08\x01", "The file is a compressed file"},
        {"\xff\xfe{\x01", "The file is not UTF-8 text"},
        {"", "is empty"},
        {" \n\n", "is empty"},
        {"{\"instruction\": \"a\"}\n{\"text\": \"b\"}\n",
         "none of its lines is a valid prompt; the error in the first is: must have exactly one of "
         "the fields"},
    };
    for (const Row& row : rows) {
        INFO(row.content);
        write_file(file, row.content);
        const ProgramEnd said = run_generate(folder, {model, "--file", file, "--tokens", "1"});
        INFO(said.err);
        CHECK(said.code == 66);
        CHECK(said.out.empty());
        CHECK_THAT(said.err, Catch::Contains(row.says));
    }
    write_file(file, "\xef\xbb\xbf{\"prompt_ids\": [1]}\nnot JSON\n{\"prompt_ids\": [2]}\n");
    const ProgramEnd said =
        run_generate(folder, {model, "--file", file, "--tokens", "1", "--context", "8"});
    INFO(said.err << said.out);
    CHECK(said.code == 0);
    CHECK(std::ranges::count(said.out, '\n') == 3);
    CHECK_THAT(said.out, Catch::Contains("\"error\""));
    CHECK_THAT(said.err,
               Catch::Contains("2 texts: 0 ended by themselves, 2 at the limit of length; "
                               "1 prompt without a text; 2 tokens in "));
}

TEST_CASE("a text that the context ends says so, and a prompt beyond it is refused unprinted") {
    const TemporaryFolder folder;
    const std::vector<std::string> words = {
        endless_model(folder), "--as", "ids", "--tokens", "9", "--context", "4", "--prompt-ids"};
    const ProgramEnd ended = run_generate(folder, with(words, {"1,2"}));
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.err, Catch::Contains("the text stops here: the model sees at most 4 tokens"));
    const ProgramEnd refused = run_generate(folder, with(words, {"1,2,3,4,5"}));
    CHECK(refused.code == 66);
    CHECK(refused.out.empty());
    CHECK_THAT(refused.err, Catch::Contains("the prompt has 5 tokens, but the context"));
    const ProgramEnd whole = run_generate(
        folder, {words[0], "--as", "ids", "--tokens", "2", "--context", "9", "--prompt-ids", "1"});
    CHECK(whole.err.find("stops here") == std::string::npos);
    CHECK(run_generate(folder, with(words, {"1", "--seed", "-1"})).code == 64);
}

TEST_CASE("a process without a launcher obeys OMP_NUM_THREADS, and --threads before it") {
    const TemporaryFolder folder;
    const std::string model = endless_model(folder);
    struct Row {
        std::vector<std::string> variables, words;
        const char* says;
    };
    const Row rows[] = {{{"OMP_NUM_THREADS=1"}, {}, ", 1 thread, "},
                        {{"OMP_NUM_THREADS=3,2"}, {}, ", 3 threads, "},
                        {{"OMP_NUM_THREADS=1"}, {"--threads", "2"}, ", 2 threads, "}};
    for (const Row& row : rows) {
        const ProgramEnd said = run_generate(
            folder,
            with({model, "--prompt-ids", "1", "--as", "ids", "--tokens", "1", "--context", "8"},
                 row.words),
            row.variables);
        INFO(said.err);
        CHECK(said.code == 0);
        CHECK_THAT(said.err, Catch::Contains(row.says));
    }
}

TEST_CASE("a process without a launcher takes no more threads than its control group grants") {
    // Uses version 2 of the kernel's interface if it exists, otherwise version 1. The quota is the
    // time of one processor.
    const bool is_v2 = std::filesystem::exists("/sys/fs/cgroup/cgroup.controllers");
    const std::string group =
        fmt::format("/sys/fs/cgroup/{}dslaunch-test-{}", is_v2 ? "" : "cpu/", ::getpid());
    std::error_code error;
    std::filesystem::create_directory(group, error);
    std::ofstream quota(group + (is_v2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
    quota << (is_v2 ? "100000 100000" : "100000") << std::flush;
    if (error || !quota.good()) {
        std::filesystem::remove(group, error);
        return report_skipped("threads in a control group",
                              "making one with a quota of processors needs root and delegation");
    }
    {
        const TemporaryFolder folder;
        JobProcess process(
            folder, {"sh", "-c",
                     fmt::format("unset OMP_NUM_THREADS; echo $$ > {}/cgroup.procs && exec {} "
                                 "generate {} --prompt-ids 1 --as ids --tokens 1 --context 8",
                                 group, kDslaunch, endless_model(folder))});
        CHECK(process.wait() == 0);
        INFO(process.err());
        CHECK_THAT(process.err(), Catch::Contains(", 1 thread, "));
    }
    std::filesystem::remove(group, error);
}

}  // namespace dslaunch::test
