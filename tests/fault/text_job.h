// A model whose text has no end, jobs that print or serve its text, and clients that see each byte
// of a server's answers.
#pragma once

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/fd.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/train_job.h"

namespace dslaunch::test {

// Makes FOLDER/model: the fixture llama without an end token and with a long context, so that its
// text has no end. Rendering its chat template takes seconds, until the server refuses it.
inline std::string endless_model(const TemporaryFolder& folder) {
    const std::string path = folder.path() + "/model";
    std::filesystem::copy(fixture_path("huggingface/llama"), path);
    Json config = Json::parse(content_of(path + "/config.json"));
    config["eos_token_id"] = nullptr;
    config["max_position_embeddings"] = 200'000;
    write_file(path + "/config.json", config.dump());
    write_file(path + "/chat_template.jinja",
               "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
    return path;
}

// A connection to a server on loopback.
class WireClient {
  public:
    explicit WireClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        is_connected_ =
            ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    [[nodiscard]] bool is_connected() const { return is_connected_; }
    void send(const std::string& bytes) const {
        REQUIRE(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                std::ssize(bytes));
    }
    // Sends as many of BYTES as the server reads: a server that refuses a request may not read the
    // rest.
    void send_what_is_taken(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) return;
            bytes.remove_prefix(static_cast<size_t>(sent));
        }
    }
    void post(const std::string& path, const Json& body) const {
        const std::string text = body.dump();
        send(
            fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                        "Content-Length: {}\r\n\r\n{}",
                        path, text.size(), text));
    }
    // Reads until WORD has come or the connection ends. Returns true if WORD has come.
    bool read_until(const std::string& word) {
        while (came_.find(word) == std::string::npos)
            if (!read_more()) return false;
        return true;
    }
    // Returns all bytes until the connection ends.
    const std::string& read_all() {
        while (read_more()) {
        }
        return came_;
    }

  private:
    bool read_more() {
        pollfd entry{socket_.get(), POLLIN, 0};
        REQUIRE(::poll(&entry, 1, kHangMs) == 1);
        char block[4096];
        const ssize_t n = ::recv(socket_.get(), block, sizeof block, 0);
        if (n > 0) came_.append(block, static_cast<size_t>(n));
        return n > 0;
    }
    UniqueFd socket_;
    bool is_connected_ = false;
    std::string came_;
};

// Returns true if REPLY is whole: it has the last chunk, or as many bytes as its length says.
inline bool is_whole(const std::string& reply) {
    const size_t head = reply.find("\r\n\r\n");
    if (head == std::string::npos) return false;
    const size_t length = reply.find("Content-Length: ");
    if (length < head) return reply.size() - head - 4 >= std::stoul(reply.substr(length + 16));
    return reply.ends_with("0\r\n\r\n");
}

// Runs `dslaunch WORDS…` with the endless model; WORDS[0] is generate or serve.
class TextJob {
  public:
    // LIMITS: shell commands that run before dslaunch starts.
    explicit TextJob(const std::vector<std::string>& words, const std::string& limits = "")
        : process_(folder_, command(words, limits)) {}

    [[nodiscard]] JobProcess& process() { return process_; }
    [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
    [[nodiscard]] std::string err() const { return process_.err(); }

    // Waits until the log contains WORD. Fails if the job ends first.
    void await(const std::string& word) {
        const bool said = wait_until(
            [&] { return err().find(word) != std::string::npos || process_.wait(0) != -1; });
        INFO(err());
        REQUIRE(said);
        REQUIRE(err().find(word) != std::string::npos);
    }
    // Waits for the first bytes of the text: then each rank has joined and computed.
    void await_text() {
        REQUIRE(wait_until([&] { return !process_.out().empty() || process_.wait(0) != -1; }));
        INFO(err());
        REQUIRE(!process_.out().empty());
    }
    // Waits until the server listens, and returns its port.
    int port() {
        await("/v1, ");
        const std::string text = err();
        const std::string before = "at http://127.0.0.1:";
        return std::stoi(text.substr(text.find(before) + before.size()));
    }
    // Returns the processes of the ranks, in the order of their numbers.
    [[nodiscard]] std::vector<ProcessName> ranks() const {
        std::vector<ProcessName> found(2);
        for (const ProcessName& each : descendants(process_.pid())) {
            if (process_file(each.pid, "cmdline").find("dsworker") == std::string::npos) continue;
            const std::string environment = process_file(each.pid, "environ");
            for (size_t rank = 0; rank < found.size(); ++rank)
                if (environment.find('\0' + fmt::format("RANK={}", rank) + '\0') !=
                    std::string::npos)
                    found[rank] = each;
        }
        return found;
    }

  private:
    std::vector<std::string> command(const std::vector<std::string>& words,
                                     const std::string& limits) const {
        std::vector<std::string> all;
        if (!limits.empty()) all = {"sh", "-c", limits + "; exec \"$@\"", "sh"};
        all.insert(all.end(), {kDslaunch, words.front(), endless_model(folder_)});
        all.insert(all.end(), words.begin() + 1, words.end());
        return all;
    }
    TemporaryFolder folder_;
    JobProcess process_;
};

}  // namespace dslaunch::test
