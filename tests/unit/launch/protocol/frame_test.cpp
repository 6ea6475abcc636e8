#include "launch/protocol/frame.h"

#include "base/error.h"
#include "launch/process/line_splitter.h"
#include "launch/protocol/control.h"
#include "launch/protocol/messages.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("frames arrive whole however the stream is cut") {
    const std::string payloads[] = {"", "a", std::string(70'000, '\0')};
    std::string stream;
    for (const auto& payload : payloads) stream += encode(Frame{FrameKind::kOutput, payload});
    for (const size_t piece : {size_t{1}, size_t{5}, size_t{6}, size_t{65'536}, stream.size()}) {
        FrameDecoder decoder(false);
        std::vector<std::string> got;
        for (size_t at = 0; at < stream.size(); at += piece) {
            decoder.append(std::string_view(stream).substr(at, piece));
            while (auto frame = decoder.next()) got.push_back(frame->payload);
        }
        REQUIRE(got == std::vector<std::string>(std::begin(payloads), std::end(payloads)));
    }
}

TEST_CASE("what a login script prints before the greeting is skipped and kept") {
    FrameDecoder decoder(true);
    decoder.append("Welcome to n1\n");
    CHECK_FALSE(decoder.next());
    decoder.append(kAgentGreeting.substr(0, 3));
    CHECK_FALSE(decoder.next());
    decoder.append(std::string(kAgentGreeting.substr(3)) + encode(Frame{FrameKind::kPong, "x"}));
    const auto frame = decoder.next();
    REQUIRE(frame);
    CHECK(frame->payload == "x");
    CHECK(decoder.noise() == "Welcome to n1\n");
    FrameDecoder endless(true);
    CHECK_THROWS_AS(endless.append(std::string(kGreetingNoiseBytesMax + 1, 'y')), Error);
}

TEST_CASE("a frame too long or of an unknown kind is refused as soon as its header is there") {
    FrameDecoder too_long(false);
    too_long.append(std::string("\xff\xff\xff\x7f\x08\x00", 6));
    CHECK_THROWS_AS(too_long.next(), Error);
    for (const char kind : {'\0', '\x09', '\x3f', '\x4a'}) {
        FrameDecoder unknown(false);
        unknown.append(std::string("\0\0\0\0", 4) + kind + '\0');
        CHECK_THROWS_AS(unknown.next(), Error);
    }
    ControlDecoder control;
    control.append(std::string("\0\0\0\0\x3f\0", 6));
    CHECK_THROWS_AS(control.next(), Error);
}

TEST_CASE("a start request survives its journey byte for byte") {
    StartRequest request;
    request.target_kind = TargetKind::kModel;
    request.inherit_all = false;
    request.working_directory = "/tmp/a b";
    const std::string odd("quote' $(x)\n\0\xff", 14);
    WorkerEnvironment place;
    place.rank = 7;
    place.node_sizes = {8, 1};
    place.devices = "GPU-1,2";
    place.launch_id = odd;
    request.workers.push_back({true, place, {"sh", odd}, {{"NAME", odd}, {"EMPTY", ""}}, {1}});
    const auto back = decode<StartRequest>(encode(request));
    CHECK(back.target_kind == TargetKind::kModel);
    CHECK_FALSE(back.inherit_all);
    CHECK(back.working_directory == "/tmp/a b");
    REQUIRE(back.workers.size() == 1);
    CHECK(back.workers[0].is_rank);
    CHECK(back.workers[0].place.variables() == place.variables());
    CHECK(back.workers[0].command == request.workers[0].command);
    CHECK(back.workers[0].environment == request.workers[0].environment);
    CHECK(back.workers[0].expanded == std::vector<int64_t>{1});
}

TEST_CASE("a message cut anywhere, or with bytes left over, is refused") {
    StartRequest request;
    request.workers.push_back({false, {}, {"sh"}, {{"A", "B"}}, {0}});
    const std::string bytes = encode(request);
    for (size_t length = 0; length < bytes.size(); ++length) {
        CHECK_THROWS_AS(decode<StartRequest>(std::string_view(bytes).substr(0, length)), Error);
    }
    CHECK_THROWS_AS(decode<StartRequest>(bytes + "x"), Error);
}

TEST_CASE("a hello of another version still tells its number") {
    Hello hello;
    hello.protocol_version = 77;
    CHECK(decode<Hello>(encode(hello) + "fields of the future").protocol_version == 77);
    AgentHello answer;
    answer.protocol_version = 78;
    answer.version = "9.9";
    CHECK(decode<AgentHello>(encode(answer) + "fields of the future").protocol_version == 78);
    CHECK(decode<AgentHello>(encode(answer) + "fields of the future").version == "9.9");
}

TEST_CASE("lines are cut at newlines and at the limit, and nothing is lost") {
    LineSplitter splitter;
    CHECK(splitter.add("ab").empty());
    CHECK(splitter.add("c\n\nde") == "abc\n\n");
    CHECK(splitter.finish() == "de\n");
    CHECK(splitter.finish().empty());
    const std::string longest(kLineBytesMax, 'x');
    CHECK(splitter.add(longest + "yz\n") == longest + "\nyz\n");
    CHECK(splitter.add(longest + "\n") == longest + "\n");
}

TEST_CASE("a line that holds a carriage return is given out as it comes, and ends once") {
    LineSplitter bars(OpenLines::kAfterReturn);
    CHECK(bars.add("plain").empty());
    CHECK(bars.add(" text\n\r 0%") == "plain text\n\r 0%");
    CHECK(bars.add("|#") == "|#");
    CHECK(bars.add("\r 20%\n100") == "\r 20%\n");
    CHECK(bars.add("\r") == "100\r");
    CHECK(bars.finish() == "\n");
    CHECK(bars.finish().empty());
    LineSplitter questions(OpenLines::kAlways);
    CHECK(questions.add("name? ") == "name? ");
    CHECK(questions.add("ok\nnext? ") == "ok\nnext? ");
    CHECK(questions.finish() == "\n");
    const std::string longer(kLineBytesMax + 1, 'x');
    CHECK(questions.add(longer + "\n" + longer) == longer + "\n" + longer);
    CHECK(questions.finish() == "\n");
    LineSplitter lines;
    CHECK(lines.add("a\rb").empty());
    CHECK(lines.finish() == "a\rb\n");
}

TEST_CASE("pieces of lines are told once, and a line is what a terminal shows of it at last") {
    struct Row {
        std::vector<const char*> parts;
        const char* told;  // lines as they are, pieces in <>
    };
    for (const Row& row :
         std::initializer_list<Row>{{{"a\nb\n"}, "a|b|"},
                                    {{"a\r\nb\r\n"}, "a|b|"},
                                    {{"a\r", "\nb"}, "<a>a|<b>"},
                                    {{"\r0%", "\r20%", "\r40%\n"}, "<0%><20%>40%|"},
                                    {{"0%\r", "20%\r", "\n"}, "<0%><20%>20%|"},
                                    {{"0%\r20%\r40%\n"}, "<0%><20%>40%|"},
                                    {{"na", "me? ", "x\n"}, "<na><name? >name? x|"},
                                    {{"\r", "\r", "\n"}, "|"},
                                    {{"", "a", "", "\n"}, "<a>a|"}}) {
        LinePieces pieces;
        std::string told;
        for (const char* part : row.parts)
            pieces.add(
                part, [&](std::string_view line) { (told += line) += "|"; },
                [&](std::string_view piece) { ((told += "<") += piece) += ">"; });
        CAPTURE(row.told);
        CHECK(told == row.told);
    }
    // Text without any line end is cut at the longest length of a line.
    LinePieces pieces;
    size_t lines = 0, bytes = 0;
    const auto count = [&](std::string_view line) { ++lines, bytes += line.size(); };
    pieces.add(std::string(3 * kLineBytesMax + 5, 'x'), count, [](std::string_view) {});
    CHECK(lines == 3);
    CHECK(bytes == 3 * kLineBytesMax);
}
