//! Sends a message to queue.1 and receives it over plain AMQP 1.0: cargo run.
//! fe2o3-amqp is a client of AMQP 1.0, not an SDK of Service Bus: entities are addresses, an accepted message is completed.
use fe2o3_amqp::{Connection, Receiver, Sender, Session};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("AMQP_ADDRESS")
        .unwrap_or("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@localhost:5672".into());
    let mut connection = Connection::open("hello", address.as_str()).await?;
    let mut session = Session::begin(&mut connection).await?;

    let mut sender = Sender::attach(&mut session, "sender", "queue.1").await?;
    sender.send("hello").await?;
    sender.close().await?;

    let mut receiver = Receiver::attach(&mut session, "receiver", "queue.1").await?;
    let delivery = receiver.recv::<String>().await?;
    println!("received: {}", delivery.body());
    receiver.accept(&delivery).await?;
    receiver.close().await?;

    session.end().await?;
    connection.close().await?;
    Ok(())
}
