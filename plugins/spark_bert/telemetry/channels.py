"""The channels for notices: mail over SMTP and incoming webhooks of chats, each configured by an Airflow connection."""

from __future__ import annotations

import json
import re
from html import escape
from typing import NamedTuple
from urllib.request import Request, urlopen

from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.sdk import Connection

#: Seconds after which a webhook's server counts as not answering.
_TIMEOUT = 10


class Text(NamedTuple):
    """The content of a notice.

    Attributes:
        subject: one line.
        lines: the body, as lines of plain text.
        link: the address of the page with the details.
    """

    subject: str
    lines: tuple[str, ...]
    link: str


def mail(connection: Connection, text: Text) -> None:
    """Send the text to the addresses in the connection's extra "to".

    Raises:
        ValueError: if the extra has no "to".
        Exception: any error of the mail server or of the connection to it.
    """
    to = connection.extra_dejson.get("to")
    if not to:
        raise ValueError('its extra has no "to": write the addresses of the recipients there, separated by commas')
    link = f'<a href="{escape(text.link)}">{escape(text.link)}</a>'
    html = "<br>\n".join([*(escape(line).replace("\n", "<br>\n") for line in text.lines), link])
    with SmtpHook(connection.conn_id) as hook:
        hook.send_email_smtp(to=to, subject=text.subject, html_content=html)


def webhook(connection: Connection, text: Text) -> None:
    """Post `{"text": ...}` to the webhook.

    The connection holds the webhook's address as its password, because anybody who knows the address can post to it.
    The text is escaped as Slack requires, so that an error message cannot notify everybody in a channel.

    Raises:
        ValueError: if the password is no such address.
        Exception: any error of the server or of the connection to it. Its message does not contain the address.
    """
    address = connection.password or ""
    if not re.fullmatch(r"https?://[!-~]+", address):
        raise ValueError(
            "its password must be the whole address of the webhook, for example https://hooks.slack.com/services/..."
        )
    body = json.dumps({"text": escape("\n".join([text.subject, *text.lines, text.link]), quote=False)})
    request = Request(address, body.encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=_TIMEOUT):
        pass
