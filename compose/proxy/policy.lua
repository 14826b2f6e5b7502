-- What a stage's container may be. The deployment's folders, images, user and network come from the environment.
--
-- Every key that is allowed is named here, so no spelling that the engine takes for another one gets through: its keys
-- are case-insensitive, and the last of two counts. Tests: tests/e2e/docker/test_proxy.py.

local json = require("json")

local function environment(name)
    local value = os.getenv(name)
    assert(value and value ~= "", name .. " is not set")
    return value
end

local function setting(name)
    return os.getenv(name) or ""
end

local HOME = environment("SPARK_BERT_HOME")
local CACHE, DATA = environment("SPARK_BERT_CACHE"), environment("SPARK_BERT_DATA")
local RUNS = HOME .. "/runs"
-- Of the runs all or none: Airflow may put a link in the place of one run's folder, and the engine would follow it.
-- The drop folder is where ingest sets malformed files aside. Airflow cannot write above it, so it is no link of its own.
local WRITABLE = {
    HOME .. "/artifacts", HOME .. "/checkpoints", HOME .. "/datasets", HOME .. "/searches", HOME .. "/streams", RUNS,
    DATA .. "/drop",
}
-- The folders in DATA that stages and the users of the platform fill. What lies in them may be a link, which the engine
-- would follow to any place of the host, so each of them can only be mounted as a whole.
local SHARED = { DATA .. "/drop", DATA .. "/incoming" }
-- Where a stage looks for what an experiment names as data/x, and finds it in DATA.
local NAMED = "/opt/spark-bert/data"
local USER = environment("SPARK_BERT_UID") .. ":" .. environment("SPARK_BERT_GID")
local NETWORKS = { "none", environment("SPARK_BERT_NETWORK") }
local IMAGES = {}
for _, name in ipairs({ "data", "train", "train-gpu", "search", "search-gpu" }) do
    IMAGES[#IMAGES + 1] = environment("SPARK_BERT_IMAGES") .. "/" .. name .. ":" .. environment("SPARK_BERT_TAG")
end
local VARIABLES = {
    "SPARK_BERT_HOME=" .. HOME,
    "SPARK_BERT_CACHE=" .. CACHE,
    "HF_HOME=" .. CACHE .. "/huggingface",
    "MLFLOW_TRACKING_URI=" .. setting("MLFLOW_TRACKING_URI"),
    "SPARK_BERT_LOG_FORMAT=" .. setting("SPARK_BERT_LOG_FORMAT"),
}
-- What a try of an Airflow task tells its stage: which one it is, and the span that it is part of. A stage writes them
-- into its run's record, log and trace, and uses them for nothing else. Promote also gets the answer of a person.
local TOLD = {
    "^SPARK_BERT_PROMOTION={%C*}$",
    "^AIRFLOW_CTX_DAG_ID=%C+$", "^AIRFLOW_CTX_DAG_RUN_ID=%C+$", "^AIRFLOW_CTX_TRY_NUMBER=%d+$",
    "^AIRFLOW_CTX_MAP_INDEX=%d+$",
    "^TRACEPARENT=%x%x%-%x+%-%x+%-%x%x$",
}

-- The most that any stage gets: of the rows in include/stages.py, or where SPARK_BERT_LIMITS says more.
local function most(name, table_says)
    local limits, units = setting("SPARK_BERT_LIMITS"), { k = 10, m = 20, g = 30, t = 40 }
    for number, unit in limits:gmatch('"' .. name .. '"%s*:%s*"?([%d.]+)([kmgtKMGT]?)') do
        table_says = math.max(table_says, tonumber(number) * (1 << (units[unit:lower()] or 0)))
    end
    return table_says
end

local MEMORY, CPUS, PIDS = most("memory", 12 << 30), most("cpus", 16), most("pids", 2048)
local TMP, SHM = most("tmp", 2 << 30), most("shm", 3 << 30)
local GPUS = setting("SPARK_BERT_GPUS")

-- Rules: functions that say whether a value is allowed.

local function of_type(name)
    return function(value)
        return type(value) == name
    end
end

local text, whole, boolean = of_type("string"), of_type("number"), of_type("boolean")

local function one_of(allowed)
    return function(value)
        for _, one in ipairs(allowed) do
            if value == one then
                return true
            end
        end
        return false
    end
end

local function like(patterns)
    return function(value)
        for _, pattern in ipairs(patterns) do
            if text(value) and value:match(pattern) then
                return true
            end
        end
        return false
    end
end

local function each(rule)
    return function(values)
        if type(values) ~= "table" then
            return false
        end
        for _, value in pairs(values) do
            if not rule(value) then
                return false
            end
        end
        return true
    end
end

local function empty(value)
    return type(value) == "table" and next(value) == nil
end

local function one(rule)
    return function(values, path)
        return type(values) == "table" and #values == 1 and rule(values[1], path)
    end
end

local function either(first, second)
    return function(value, path)
        return first(value) or second(value, path)
    end
end

local function up_to(highest)
    return function(value)
        return whole(value) and value > 0 and value <= highest
    end
end

-- An object that has all the required keys, and of the optional ones any; for those, null is the same as no key. A null
-- is no harmless value elsewhere: the engine takes "hostconfig" for HostConfig, and null for none.
local function object(required, optional)
    return function(value, path)
        if type(value) ~= "table" then
            return false
        end
        for key in pairs(required) do
            if value[key] == nil then
                json.refuse(path .. key .. " is missing")
            end
        end
        for key, inner in pairs(value) do
            local name = path .. tostring(key):gsub("[^%w_]", "?")
            local rule = required[key] or optional[key]
            if not (inner == json.null and optional[key]) and not (rule and rule(inner, name .. ".")) then
                json.refuse(name .. " is not allowed" .. (rule and " with this value" or ""))
            end
        end
        return true
    end
end

-- Folders

local function plain(path)
    return path:sub(1, 1) == "/" and not path:find("[%c\\]") and not (path .. "/"):find("/%.%.?/")
end

local function below(path, folder)
    return path == folder or path:sub(1, #folder + 1) == folder .. "/"
end

local function readable(path)
    for _, folder in ipairs(SHARED) do
        if below(path, folder) then
            return path == folder
        end
    end
    return below(path, CACHE) or below(path, DATA)
end

-- A folder has the same path inside, unless an experiment names it as data/x.
local function target_of(source, target)
    return target == source or below(source, DATA) and target == NAMED .. source:sub(#DATA + 1)
end

local bind = object({ Type = one_of({ "bind" }), Source = text, Target = text, ReadOnly = boolean }, {})

local function mount(value, path)
    if not bind(value, path) then
        return false
    end
    local source = value.Source
    if not plain(source) or not (one_of(WRITABLE)(source) or readable(source) and value.ReadOnly) then
        json.refuse(source:gsub("[^%w/._-]", "?") .. " may not be mounted" .. (value.ReadOnly and "" or " for writing"))
    elseif not target_of(source, value.Target) then
        json.refuse(source:gsub("[^%w/._-]", "?") .. " may not be mounted elsewhere")
    end
    return true
end

-- The container

local function tmpfs(value)
    if type(value) ~= "table" or next(value) ~= "/tmp" or next(value, "/tmp") ~= nil then
        return false
    end
    local size = tostring(value["/tmp"]):match("^rw,exec,nosuid,nodev,mode=1777,size=(%d+)$")
    return up_to(TMP)(tonumber(size or 0))
end

local function gpus(count)
    return GPUS == "all" and count == -1 or GPUS ~= "all" and up_to(tonumber(GPUS) or 0)(count)
end

local gpu = object({ Driver = one_of({ "" }), Count = gpus, Capabilities = one(one(one_of({ "gpu" }))) }, {
    DeviceIDs = empty, Options = empty,
})

local host = object({
    CapDrop = one(one_of({ "ALL" })),
    ReadonlyRootfs = one_of({ true }),
    SecurityOpt = one(one_of({ "no-new-privileges:true" })),
    NetworkMode = one_of(NETWORKS),
    IpcMode = one_of({ "private" }),
    Init = one_of({ true }),
    Memory = up_to(MEMORY),
    MemorySwap = up_to(MEMORY), -- of memory and swap together; equal to the memory, see below
    NanoCpus = up_to(math.floor(CPUS * 1e9)),
    PidsLimit = up_to(PIDS),
    ShmSize = up_to(SHM),
    Tmpfs = tmpfs,
    LogConfig = object({ Type = one_of({ "json-file" }), Config = object({
        ["max-size"] = one_of({ "20m" }), ["max-file"] = one_of({ "3" }),
    }, {}) }, {}),
    Mounts = each(function(value) return mount(value, "HostConfig.Mounts.") end),
}, {
    DeviceRequests = either(empty, one(gpu)),
})

local function host_without_swap(value, path)
    return host(value, path) and value.Memory == value.MemorySwap
end

-- The command line of a stage: its name, what to do, and the folder of its run.
local function command(values)
    return type(values) == "table" and #values == 5 and each(text)(values) and values[1]:match("^%l+$") ~= nil
        and values[2] == "--experiment" and values[4] == "--run" and below(values[5], RUNS) and plain(values[5])
end

local labels = object({ ["spark-bert.deployment"] = one_of({ environment("SPARK_BERT_DEPLOYMENT") }) }, {
    ["spark-bert.dag"] = text, ["spark-bert.run"] = text, ["spark-bert.task"] = text, ["spark-bert.map"] = text,
    ["spark-bert.generation"] = text, ["spark-bert.stage"] = text,
})

local no, yes, nothing = one_of({ false }), one_of({ true }), one_of({})
local container = object({
    Image = one_of(IMAGES), User = one_of({ USER }), Cmd = command, Labels = labels, HostConfig = host_without_swap,
}, {
    Env = each(either(one_of(VARIABLES), like(TOLD))), Hostname = one_of({ "localhost" }), StopTimeout = up_to(600),
    AttachStdin = no, AttachStdout = yes, AttachStderr = yes, OpenStdin = no, StdinOnce = no, Tty = no,
    NetworkDisabled = no,
    -- The client sends them, as null.
    Domainname = nothing, Entrypoint = nothing, ExposedPorts = nothing, Healthcheck = nothing, MacAddress = nothing,
    NetworkingConfig = nothing, Runtime = nothing, StopSignal = nothing, Volumes = nothing, WorkingDir = nothing,
})

core.register_action("check_create", { "http-req" }, function(txn)
    local good, refusal = pcall(function()
        if txn.f:req_body_len() ~= txn.f:req_body_size() then
            json.refuse("the body is too large to be checked")
        end
        if not container(json.read(txn.f:req_body()), "") then
            json.refuse("the body is not an object")
        end
    end)
    if not good then
        -- An error of this file's own refuses too.
        txn:set_var("txn.refusal", type(refusal) == "table" and refusal.reason or "the body could not be checked")
    end
end)
