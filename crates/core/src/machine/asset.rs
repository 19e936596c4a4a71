//! Asset: a versioned value that missions promise and steps make.

super::machine! {
    name: "asset", prefix: "AS",
    doc: "A versioned, schema-checked value that missions promise and steps make.";
    states {
        AwaitingApproval   "AWAITING_APPROVAL"    Live     "proposed with its mission or hop";
        ReadyForProcessing "READY_FOR_PROCESSING" Live     "accepted, no value yet";
        Processing         "PROCESSING"           Live     "a step makes its value";
        Ready              "READY"                Live     "has a value that fits its schema";
        Error              "ERROR"                Rest     "making, checking or keeping its value failed";
        Expired            "EXPIRED"              Rest     "its time to live is over";
        Deleted            "deleted"              Terminal "removed from view";
    }
    events {
        ProposeAsset        "propose_asset"        [Agent User System] "named by a proposal";
        RegisterAsset       "register_asset"       [User System]       "a credential, configuration or supplied value";
        CreateIntermediate  "create_intermediate"  [System Agent]      "a hop-scoped scratch value";
        AcceptAsset         "accept_asset"         [User System]       "accepted by itself or with its proposal";
        RejectAsset         "reject_asset"         [User System]       "turned down by itself or with its proposal";
        EditAsset           "edit_asset"           [User Agent]        "a new revision of the proposal";
        StartProcessing     "start_processing"     [System]            "a step begins to make it";
        ProcessingCompleted "processing_completed" [System]            "its value is made";
        ProcessingFailed    "processing_failed"    [System]            "making it failed";
        CancelProcessing    "cancel_processing"    [User System]       "making it was cancelled";
        CorruptionDetected  "corruption_detected"  [System]            "its hash does not fit";
        TtlExceeded         "ttl_exceeded"         [System]            "expires_at has passed";
        ProvideValue        "provide_value"        [User]              "a person supplies the value";
        ValidationFailed    "validation_failed"    [System]            "what it should be made from is not valid";
        Reprocess           "reprocess"            [User System]       "make a new version";
        FixAsset            "fix_asset"            [User System]       "open it for processing again";
        RefreshAsset        "refresh_asset"        [User System]       "bring an expired one back";
        DeleteAsset         "delete_asset"         [User]              "remove it";
        Promote             "promote"              [System]            "its hop is done: the mission points at this version";
    }
    rows {
        "AS1"  []                   ProposeAsset        => AwaitingApproval   emits ["asset.proposed"] "schema valid";
        "AS2"  [AwaitingApproval]   AcceptAsset         => ReadyForProcessing emits ["asset.accepted"] "";
        "AS3"  [AwaitingApproval]   RejectAsset         => Deleted            emits ["asset.rejected"] "";
        "AS4"  [ReadyForProcessing] StartProcessing     => Processing         emits ["asset.processing_started"] "";
        "AS5"  [Processing]         ProcessingCompleted => Ready              emits ["asset.ready"]    "value fits schema";
        "AS6"  [Processing]         ProcessingFailed    => Error              emits ["asset.error"]    "";
        "AS7"  [Ready]              CorruptionDetected  => Error              emits ["asset.error"]    "hash mismatch";
        "AS8"  [AwaitingApproval ReadyForProcessing Processing Ready Error] TtlExceeded => Expired emits ["asset.expired"] "expires_at passed";
        "AS9"  [ReadyForProcessing] ProvideValue        => Ready              emits ["asset.ready"]    "value fits schema; by = user";
        "AS10" [ReadyForProcessing] ValidationFailed    => Error              emits ["asset.error"]    "";
        "AS11" [Processing]         CancelProcessing    => ReadyForProcessing emits ["asset.processing_cancelled"] "";
        "AS12" [Ready]              Reprocess           => Processing         emits ["asset.processing_started"] "version + 1; the old one stays readable";
        "AS13" [Error]              FixAsset            => ReadyForProcessing emits ["asset.reopened"] "";
        "AS14" [Error]              Reprocess           => Processing         emits ["asset.processing_started"] "";
        "AS15" [Expired]            RefreshAsset        => ReadyForProcessing emits ["asset.refreshed"] "";
        "AS16" [AwaitingApproval Error Expired] DeleteAsset => Deleted        emits ["asset.deleted"]  "no live step refers to it";
        "AS17" []                   RegisterAsset       => Ready              emits ["asset.ready"]    "credential, config or supplied value";
        "AS18" [Ready]              Promote             => stay               emits ["asset.promoted"] "hop output";
        "AS19" []                   CreateIntermediate  => ReadyForProcessing emits ["asset.accepted"] "auto = true; hop-scoped";
        "AS20" [AwaitingApproval]   EditAsset           => stay               emits ["asset.revised"]  "expected revision matches";
    }
    ignores {}
    refuses {}
    rules {}
}
